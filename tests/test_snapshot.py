"""A snapshot holds what was read, says what was not, and keeps no secret; real environments are told apart by their files."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest
import wheels

import runbook
from runbook import connect, snapshot
from runbook.errors import BadParameter
from runbook.probes import replay
from runbook.probes.live import SET_BUT_HIDDEN, LiveProbe
from runbook.snapshot import KEPT_BACK, RUNNING_ARGV, Snapshot
from runbook.workspace import Workspace

SCHEMA = Path(runbook.__file__).parent / "schemas" / "snapshot.schema.json"
THEN = "2026-11-30T12:00:00+00:00"
CPU = "vllm-0.32.0-cpu"
H200 = "recorded:h200-vllm-0.19.1"


def of(python: Path, work: Path) -> Snapshot:
    """The real thing, of this machine and that interpreter."""
    host = connect.cached(LiveProbe(Workspace(work), CPU, python))
    return snapshot.take(host, THEN, redact=lambda text: text)


def recorded(name: str, work: Path) -> Snapshot:
    return snapshot.take(connect.cached(connect.probe(name, "auto", "", Workspace(work))), THEN)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    return wheels.environment(folder / "venv", wheels.torch(folder / "dist"))


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """An environment of the test's own, to be broken."""
    return wheels.environment(tmp_path / "venv", wheels.torch(tmp_path / "dist"))


def test_two_installs_of_one_wheel_are_the_same_although_their_records_differ(
    tmp_path: Path, python: Path
) -> None:
    other = wheels.environment(tmp_path / "elsewhere", wheels.torch(tmp_path / "dist"))
    raw = [(wheels.site(each) / "torch-2.10.0.dist-info" / "RECORD").read_bytes() for each in (python, other)]
    assert raw[0] != raw[1]  # torchrun's first line names the interpreter
    one, two = (of(each, tmp_path).packages["torch"] for each in (python, other))
    assert one == two
    assert one.content
    assert one.installer == "uv"
    assert one.needs == ("sympy", "triton")
    assert (one.touched, one.origin) == (0, None)


def test_another_build_of_the_same_version_has_another_content(tmp_path: Path, python: Path) -> None:
    other = wheels.environment(tmp_path / "venv", wheels.torch(tmp_path / "dist", extra="y = 2\n"))
    one, two = (of(each, tmp_path).packages["torch"] for each in (python, other))
    assert one.version == two.version
    assert one.content != two.content


def test_a_file_that_somebody_wrote_to_is_named_and_a_copied_tree_is_not_accused(
    tmp_path: Path, changed: Path
) -> None:
    module = wheels.site(changed) / "torch" / "__init__.py"
    module.unlink()  # uv may have linked it to its cache
    module.write_text("x = 2\n", encoding="utf-8")  # as long as before: sizes do not show it
    later = time.time() + 60
    os.utime(module, (later, later))
    found = of(changed, tmp_path)
    assert found.packages["torch"].touched == 0  # one of two files: half a package is no majority for a copy
    for name in ("a", "b", "c"):
        (wheels.site(changed) / "torch" / f"{name}.py").write_text("", encoding="utf-8")
    record = wheels.site(changed) / "torch-2.10.0.dist-info" / "RECORD"
    record.write_text(
        record.read_text(encoding="utf-8") + "torch/a.py,,\ntorch/b.py,,\ntorch/c.py,,\n", encoding="utf-8"
    )
    found = of(changed, tmp_path)
    assert (found.packages["torch"].touched, found.packages["torch"].changed) == (1, ("torch/__init__.py",))
    for path in (wheels.site(changed) / "torch").glob("*.py"):
        os.utime(path, (later, later))
    assert of(changed, tmp_path).packages["torch"].touched == 0


def test_a_file_that_two_packages_bring_was_written_by_the_later_one_and_by_nobody_else(
    tmp_path: Path,
) -> None:
    shared = {"nvidia/__init__.py": ""}
    pair = [wheels.made(tmp_path / "dist", name, "12.8", {**shared, f"nvidia/{name}.py": "", f"nvidia/{name}2.py": ""}) for name in ("cublas", "cufft")]  # fmt: skip
    python = wheels.environment(tmp_path / "venv", *pair)
    later = time.time() + 60
    os.utime(wheels.site(python) / "nvidia" / "__init__.py", (later, later))
    found = of(python, tmp_path)
    assert {name: one.touched for name, one in found.packages.items()} == {"cublas": 0, "cufft": 0}


def test_a_checkout_is_told_by_its_place_and_a_stray_module_by_its_name(
    tmp_path: Path, changed: Path
) -> None:
    site = wheels.site(changed)
    (site / "torch-2.10.0.dist-info" / "direct_url.json").write_text(
        json.dumps({"url": "file:///src/torch", "dir_info": {"editable": True}}), encoding="utf-8"
    )
    (site / "vllm.py").write_text("", encoding="utf-8")
    (site / "mine.pth").write_text("/src/elsewhere\n", encoding="utf-8")
    found = of(changed, tmp_path)
    assert found.packages["torch"].origin == "checkout file:///src/torch"
    assert found.imports["vllm.py"] == "recorded by no package"
    assert found.imports["mine.pth"] in ("recorded by no package", "adds /src/elsewhere")


@pytest.mark.parametrize("text", ["", "\0\0", '"' + "x" * 200_000, "torch/__init__.py", ",,,,\n" * 50, "\udcff".encode(errors="surrogateescape").decode("latin-1")])  # fmt: skip
def test_a_record_of_any_bytes_is_read_or_left_and_never_ends_the_snapshot(
    tmp_path: Path, changed: Path, text: str
) -> None:
    info = wheels.site(changed) / "torch-2.10.0.dist-info"
    for name in ("RECORD", "direct_url.json", "INSTALLER"):
        (info / name).write_text(text, encoding="utf-8")
    found = of(changed, tmp_path)
    assert found.packages["torch"].version == "2.10.0"
    assert snapshot.from_json(snapshot.as_json(found), "it") == found


def test_an_interpreter_that_does_not_start_is_a_fault_and_its_packages_a_gap(
    tmp_path: Path, changed: Path
) -> None:
    changed.unlink()
    changed.write_text("#!/bin/sh\necho 'no libpython3.11.so.1.0' >&2\nexit 127\n", encoding="utf-8")
    changed.chmod(0o755)
    found = of(changed, tmp_path)
    assert found.python
    assert "no libpython3.11.so.1.0" in found.python.fault
    assert found.packages == {}
    assert found.gaps["target"] == "its interpreter does not start"


def test_a_machine_without_an_environment_has_a_gap_and_all_of_the_machine(tmp_path: Path) -> None:
    found = of(tmp_path / "nothing" / "bin" / "python", tmp_path)
    assert (found.python, found.gaps["target"]) == (None, snapshot.NO_TARGET)
    assert found.system["kernel"] == subprocess.run(["uname", "-srm"], capture_output=True, text=True, check=True).stdout.strip()  # fmt: skip


def test_what_a_recording_does_not_hold_is_a_gap_and_never_an_absence(tmp_path: Path) -> None:
    found = recorded(H200, tmp_path)
    assert found.gaps["contents"] == "not recorded"
    assert found.packages["torch"].content is None
    assert "cores" not in found.system
    assert found.gaps["system.cores"] == "not recorded"
    assert found.env["CUDA_VISIBLE_DEVICES"] is None  # asked and not set, which is another thing
    assert "env" not in found.gaps
    assert [(gpu.name, gpu.capability) for gpu in found.gpus] == [("NVIDIA H200", "9.0")]
    assert found.server
    assert found.server.flags["--max-model-len"] == "32768"
    assert "--port" not in found.server.flags


@pytest.mark.parametrize("name", replay.names())
def test_every_recorded_machine_gives_a_snapshot_of_the_written_form(name: str, tmp_path: Path) -> None:
    found = recorded(f"recorded:{name}", tmp_path)
    text = snapshot.as_json(found)
    jsonschema.validate(json.loads(text), json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert snapshot.from_json(text, name) == found


def test_the_written_schema_is_that_of_the_code() -> None:
    kept = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert {
        key: value for key, value in kept.items() if not key.startswith("$") or key == "$defs"
    } == snapshot.schema()


def test_no_secret_is_kept(tmp_path: Path, python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "hf_" + "a1b2c3d4e5" * 3
    monkeypatch.setenv("HF_TOKEN", token)
    monkeypatch.setenv("HF_ENDPOINT", f"https://me:{token}@mirror.example/hf")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth0")
    host = connect.cached(LiveProbe(Workspace(tmp_path), CPU, python))
    found = snapshot.take(host, THEN)
    assert token not in snapshot.as_json(found)
    assert found.env["HF_TOKEN"] == SET_BUT_HIDDEN
    assert found.env["NCCL_SOCKET_IFNAME"] == "eth0"
    assert KEPT_BACK.search(found.env["HF_ENDPOINT"] or "")


@pytest.fixture
def server() -> Iterator[list[str]]:
    """A process whose command line is a vLLM server's, with a key in it; its words after the module."""
    words = ["--api-key", "verysecretkey", "--max-model-len", "4096"]
    code = "import time; time.sleep(600)".replace(" ", "\t")
    with subprocess.Popen(
        [sys.executable, "-c", code, "-m", "vllm.entrypoints.openai.api_server", *words]
    ) as process:
        line = Path(f"/proc/{process.pid}/cmdline")
        while b"max-model-len" not in line.read_bytes():  # it is ours until exec
            time.sleep(0.01)
        yield words
        process.kill()


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="there is no pgrep")
def test_a_server_that_runs_is_found_and_its_key_never_leaves_the_shell(
    server: list[str], tmp_path: Path
) -> None:
    ran = LiveProbe(Workspace(tmp_path)).run(RUNNING_ARGV)
    assert server[1] not in ran.out
    assert "--api-key <token> --max-model-len 4096" in ran.out
    assert "pgrep" not in ran.out


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"schema": "snapshot/2"}', '{"taken": 3}', "\0", "[" * 100_000]
)
def test_what_is_no_snapshot_is_refused_by_name(text: str) -> None:
    with pytest.raises(BadParameter, match=r"^odd[.]json is no snapshot"):
        snapshot.from_json(text, "odd.json")


def test_a_snapshot_of_another_version_is_refused_whatever_else_it_holds(tmp_path: Path) -> None:
    whole = dataclasses.asdict(recorded(H200, tmp_path)) | {"schema": "snapshot/9"}
    with pytest.raises(BadParameter, match="snapshot/1"):
        snapshot.from_json(json.dumps(whole), "x")
