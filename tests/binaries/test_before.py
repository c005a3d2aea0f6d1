"""Wheels are judged against a target before they are installed, and the target stays as it is."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, cast

import linked
import pytest

from runbook import abi
from runbook.binaries import before
from runbook.errors import BadParameter
from runbook.parse.links import Links
from runbook.probe import Ran


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return linked.base(tmp_path / "env")


def wheel(folder: Path, library: Path, name: str = "made-2.0-cp311-cp311-linux_x86_64.whl") -> Path:
    with zipfile.ZipFile(folder / name, "w") as packed:
        packed.write(library, "made-2.0.data/platlib/made/_C.so")
        packed.writestr("made/__init__.py", "")
    return folder / name


class Live:
    """A live machine that answers one question only: it really runs the reader of wheels on a made-up environment."""

    machine = "live"
    stack = ""
    has_target = True

    def __init__(self, site: Path) -> None:
        self.site = site

    def run(self, argv: list[str], timeout_s: float = 20.0) -> Ran:
        words = [
            word.replace("{own}/python", sys.executable).replace("{site}", str(self.site)) for word in argv
        ]
        ran = subprocess.run(words, capture_output=True, text=True, check=False, timeout=timeout_s)
        return Ran(tuple(argv), ran.returncode, ran.stdout, ran.stderr)


def judged(site: Path, wheels: list[Path]) -> Links:
    return abi.of_wheels(cast("Any", Live(site)), wheels)


def state(folder: Path) -> list[tuple[str, int, int]]:
    return sorted((str(path), path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*"))


def test_a_wheel_is_judged_against_the_torch_of_the_target(site: Path, tmp_path: Path) -> None:
    good = wheel(tmp_path, linked.plain(site))
    bad = wheel(tmp_path, linked.lacks_symbol(site), "other-1.0-cp311-cp311-linux_x86_64.whl")
    was = state(site)
    whole = judged(site, [good])
    assert [one.file for one in whole.files] == ["made/_C.so"]
    assert abi.exit_code(whole) == 0
    broken = judged(site, [bad])
    assert [each.symbol for one in broken.files for each in one.missing] == ["c10_gone", "also_gone"]
    assert abi.exit_code(broken) == 1
    assert state(site) == was


def test_the_release_that_a_wheel_replaces_does_not_count(site: Path, tmp_path: Path) -> None:
    """The installed release has a library that the wheel's needs and does not bring."""
    path = linked.loaded_by_its_package(site)
    packed = wheel(tmp_path, path)
    (site / "ext").rename(site / "made")
    (site / "made-1.0.dist-info").mkdir()
    record = site / "made-1.0.dist-info/RECORD"
    record.write_text("", encoding="utf-8")
    assert abi.exit_code(judged(site, [packed])) == 0
    record.write_text("made/libown.so,,\nmade/_C.so,,\n", encoding="utf-8")
    (one,) = judged(site, [packed]).files
    assert one.missing_libraries == ("libown.so",)


def test_a_torch_among_the_wheels_is_what_all_others_are_judged_by(site: Path, tmp_path: Path) -> None:
    linked.plain(site)
    new = linked.build(tmp_path / "new/libc10.so", "int c10_other(void) { return 1; }")
    name = tmp_path / "torch-9.0-cp311-cp311-linux_x86_64.whl"
    with zipfile.ZipFile(name, "w") as packed:
        packed.write(new, "torch/lib/libc10.so")
        packed.writestr("torch/version.py", "__version__ = '9.0'\n")
    found = judged(site, [name])
    assert found.torch == "9.0"
    lacking = {one.file: [each.symbol for each in one.missing] for one in found.files if one.missing}
    assert lacking == {"ext/_C.so": ["c10_add"]}


def test_wheels_for_another_processor_are_refused(site: Path, tmp_path: Path) -> None:
    path = linked.plain(site)
    data = bytearray(path.read_bytes())
    data[18:20] = (183).to_bytes(2, "little")
    path.unlink()
    path.write_bytes(data)
    packed = wheel(tmp_path, path, "made-2.0-cp311-cp311-linux_aarch64.whl")
    with pytest.raises(BadParameter, match="aarch64"):
        judged(site, [packed])


def test_what_is_no_wheel_is_refused(site: Path, tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("", encoding="utf-8")
    torn = tmp_path / "torn-1.0-py3-none-any.whl"
    torn.write_bytes(b"PK\x03\x04 and no more")
    for path in (note, tmp_path / "none.whl"):
        with pytest.raises(BadParameter):
            judged(site, [path])
    with pytest.raises(abi.NotRead, match="zip file"):
        judged(site, [torn])
    recorded = Live(site)
    recorded.machine = "recorded:somewhere"
    with pytest.raises(BadParameter, match="recorded:somewhere"):
        abi.of_wheels(cast("Any", recorded), [torn])
    assert before.main([]) == 2
