"""What wheels take, read from their ends over HTTP or where they lie."""

import json
import os
import zipfile
from pathlib import Path

import pytest
import wheels
from ranged import index

from runbook import pins, remote, sizes
from runbook.errors import ActionFailed
from runbook.pins import Size
from runbook.resolve import Wheel


def big(folder: Path) -> Path:
    """A wheel with a large file and two thousand small ones: its list of files is longer than what is fetched at once."""
    path = wheels.made(folder, "big", "1.0", {"big/__init__.py": "x = 1\n"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("big/data.bin", os.urandom(1 << 20))
        for number in range(2000):
            archive.writestr(f"big/part{number:04}.py", "y = 2\n")
        archive.writestr("big/empty/", "")
    return path


def told(path: Path) -> tuple[int, int]:
    with zipfile.ZipFile(path) as archive:
        files = [each for each in archive.infolist() if not each.is_dir()]
    return len(files), sum(each.file_size for each in files)


@pytest.mark.parametrize("parts", [True, False])
def test_a_look_into_a_wheel_on_a_server(tmp_path: Path, parts: bool) -> None:  # noqa: FBT001
    path = big(tmp_path)
    with index(tmp_path, parts=parts) as server, remote.opened() as looked:
        files = looked.files(f"{server.address}/files/{path.name}")
        assert (len(files), sum(each.file_size for each in files)) == told(path)
        if parts:
            assert server.sent < path.stat().st_size / 2
        assert "Name: big\nVersion: 1.0" in looked.metadata(f"{server.address}/files/{path.name}")


def test_a_look_into_a_wheel_in_a_folder(tmp_path: Path) -> None:
    path = big(tmp_path)
    with remote.opened() as looked:
        assert len(looked.files(str(path))) == told(path)[0]
        assert "Name: big" in looked.metadata(str(path))


def test_what_is_no_wheel_or_not_handed_out(tmp_path: Path) -> None:
    path = big(tmp_path)
    (tmp_path / "odd-1.0-py3-none-any.whl").write_bytes(b"<html>log in</html>")
    with zipfile.ZipFile(tmp_path / "bare.whl", "w") as archive:
        archive.writestr("x.py", "")
    with remote.opened() as looked:
        with index(tmp_path) as server, pytest.raises(ActionFailed, match="BadZipFile"):
            looked.files(f"{server.address}/files/odd-1.0-py3-none-any.whl")
        with (
            index(tmp_path, status=403) as server,
            pytest.raises(ActionFailed, match="answers 403") as refused,
        ):
            looked.files(f"{server.address}/files/{path.name}")
        assert "://" not in str(refused.value)
        with pytest.raises(ActionFailed, match="ConnectError"):
            looked.files("http://127.0.0.1:9/files/x.whl")
        with pytest.raises(ActionFailed, match="FileNotFoundError"):
            looked.files(str(tmp_path / "none.whl"))
        with pytest.raises(ActionFailed, match="has no METADATA"):
            looked.metadata(str(tmp_path / "bare.whl"))


def test_sizes_of_locks_are_written_once_a_wheel_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = big(tmp_path / "shelf")
    wheel = Wheel("big", "1.0", path.name, path.stat().st_size, "a" * 64)
    other = Wheel("small", "2", "small-2-py3-none-any.whl", 7, "b" * 64)
    known = {("small", "2", 7): Size("2", 7, 9, 1, 0)}
    by_python = sizes.measured(
        {"3.11": [(wheel, str(path))], "3.12": [(wheel, str(path)), (other, "nowhere")]}, known
    )
    files, unpacked = told(path)
    assert by_python["3.11"]["big"] == Size("1.0", path.stat().st_size, unpacked, files, 6 + 2000 * 6)
    stack = tmp_path / "stacks" / "one"
    stack.mkdir(parents=True)
    text = sizes.text(by_python)
    assert "://" not in text
    assert [row["package"] for row in json.loads(text)["rows"]] == ["big", "small"]
    (stack / "sizes.json").write_text(text, encoding="utf-8")
    monkeypatch.setattr(pins, "STACKS", tmp_path / "stacks")
    assert pins.sizes("one", "3.11") == by_python["3.11"]
    assert pins.sizes("one", "3.12") == by_python["3.12"]
    assert pins.sizes("one", "3.13") == {}
    one = by_python["3.11"]["big"]
    assert one.installed == one.unpacked + round(one.sources * pins.BYTECODE)
