"""Each kind of probe on a target where it stands, on one where it does not, and where it cannot be asked."""

import gzip
import subprocess
from pathlib import Path
from typing import Any

import environment as making
import pytest
from pydantic import TypeAdapter

from runbook.claims.probes import KINDS, AnyProbe
from runbook.claims.probes.base import Outcome, Reading
from runbook.claims.target import Environment

STANDS, DRIFTED, CANNOT = Outcome.STANDS, Outcome.DRIFTED, Outcome.CANNOT_RUN
MACHINE_CODE = Path(__file__).parents[1] / "data" / "machine_code" / "sample.so.gz"
H200 = "h200-vllm-0.19.1"
READ: TypeAdapter[Any] = TypeAdapter(AnyProbe)
SITE = "{site}/vllm"
SOURCE = 'const char *made = "release 12.9"; extern int cuInit(int); int go(void) { return cuInit(0); }'


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A target with a vllm of ours, two libraries, and one that is none."""
    folder = tmp_path_factory.mktemp("claims")
    python = making.made(folder / "env")
    (site,) = (folder / "env").glob("lib/*/site-packages")
    library = site / "vllm/_C.so"
    argv = [
        "gcc",
        "-w",
        "-shared",
        "-fPIC",
        "-x",
        "c",
        "-",
        "-o",
        str(library),
        "-Wl,-rpath,$ORIGIN/../nvidia",
    ]
    subprocess.run(argv, input=SOURCE, text=True, check=True, timeout=60)
    (site / "vllm/_fa2.so").write_bytes(gzip.decompress(MACHINE_CODE.read_bytes()))
    (site / "vllm/_cut.so").write_bytes(library.read_bytes()[:200])
    return making.asked(python, folder / "work")


CASES: list[tuple[dict[str, Any], Outcome]] = [
    ({"kind": "text", "path": f"{SITE}/engine.py", "has": ["limit = 7"], "lacks": ["limit = 8"]}, STANDS),
    ({"kind": "text", "path": f"{SITE}/engine.py", "has": ["limit = 8"]}, DRIFTED),
    ({"kind": "text", "path": f"{SITE}/engine.py", "lacks": ["limit = 7"]}, DRIFTED),
    ({"kind": "text", "path": f"{SITE}/engine.py", "has": ["LIMIT"]}, DRIFTED),
    ({"kind": "text", "path": f"{SITE}/engine.py", "has": ["LIMIT"], "any_case": True}, STANDS),
    ({"kind": "text", "path": f"{SITE}/gone.py", "lacks": ["limit"]}, DRIFTED),
    ({"kind": "text", "path": [f"{SITE}/**/*.py"], "has": ["device_type", "limit = 7"]}, STANDS),
    ({"kind": "text", "path": f"{SITE}/engine.py", "has": ["no driver"], "within": "def Queue.put"}, STANDS),
    ({"kind": "text", "path": f"{SITE}/engine.py", "has": ["no driver"], "within": "def size"}, DRIFTED),
    ({"kind": "text", "path": f"{SITE}/engine.py", "lacks": ["no driver"], "within": "def gone"}, DRIFTED),
    ({"kind": "text", "path": "{site}/vllm-*.dist-info/METADATA", "lacks": ["a"], "within": "def f"}, DRIFTED),
    ({"kind": "files", "path": f"{SITE}/engine.py"}, STANDS),
    ({"kind": "files", "path": f"{SITE}/gone.py"}, DRIFTED),
    ({"kind": "files", "path": f"{SITE}/gone.py", "there": False}, STANDS),
    ({"kind": "files", "path": f"{SITE}/engine.py", "there": False}, DRIFTED),
    ({"kind": "files", "path": f"{SITE}/_*.so", "names": ["_C.so", "_fa2.so", "_cut.so"]}, STANDS),
    ({"kind": "files", "path": f"{SITE}/_*.so", "names": ["_C.so"]}, DRIFTED),
    ({"kind": "requires", "package": "vllm", "of": "torch", "allows": ["2.10.0"], "refuses": ["2.3.1"]}, STANDS),
    ({"kind": "requires", "package": "vllm", "of": "torch", "allows": ["2.3.1"]}, DRIFTED),
    ({"kind": "requires", "package": "vllm", "of": "torch", "refuses": ["2.10.0"]}, DRIFTED),
    ({"kind": "requires", "package": "vllm", "of": "numpy", "refuses": ["1.0"]}, DRIFTED),
    ({"kind": "requires", "package": "vllm", "of": "python", "allows": ["3.13.1"], "refuses": ["3.14.0"]}, STANDS),
    ({"kind": "requires", "package": "vllm", "of": "python", "allows": ["3.14.0"]}, DRIFTED),
    ({"kind": "requires", "package": "vllm", "of": "flash_attn", "absent": True}, STANDS),
    ({"kind": "requires", "package": "vllm", "of": "torch", "absent": True}, DRIFTED),
    ({"kind": "requires", "package": "vllm", "tag": "cp38-abi3-linux_x86_64"}, STANDS),
    ({"kind": "requires", "package": "vllm", "tag": "py3-none-any"}, DRIFTED),
    ({"kind": "requires", "package": "sglang", "of": "torch", "absent": True}, CANNOT),
    ({"kind": "requirements", "lines": ["torch==2 --index-url https://example.com"], "says": ["Expected `--hash`"]}, STANDS),
    ({"kind": "requirements", "lines": ["torch==2 --index-url https://example.com"], "says": ["welcome"]}, DRIFTED),
    ({"kind": "requirements", "lines": ["# nothing"], "says": [""]}, DRIFTED),
    ({"kind": "lock", "stack": "vllm-0.19.1-cpu", "package": "torch", "is": "2.10.0"}, STANDS),
    ({"kind": "lock", "stack": "vllm-0.19.1-cpu", "package": "torch", "is": "2.3.1"}, DRIFTED),
    ({"kind": "lock", "stack": "vllm-0.19.1-cpu", "package": "flash-attn", "absent": True}, STANDS),
    ({"kind": "lock", "stack": "vllm-0.19.1-cpu", "package": "torch", "absent": True}, DRIFTED),
    ({"kind": "lock", "stack": "vllm-0.19.1-cpu", "package": "flash-attn", "is": "2.6.3"}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_C.so", "asks": ["cuInit"], "asks_not": ["PyList"], "holds": ["release 12.9"], "holds_not": ["pybind"], "defines": ["go"], "searches": ["../nvidia"]}, STANDS),
    ({"kind": "elf", "file": f"{SITE}/_C.so", "asks": ["PyList"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_C.so", "asks_not": ["cuInit"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_C.so", "holds": ["release 12.8"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_C.so", "holds_not": ["release 12.9"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_C.so", "defines": ["gone"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_C.so", "defines_not": ["go"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_C.so", "searches": ["/usr/local/cuda"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_C.so", "searches_nothing": True}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_fa2.so", "searches_nothing": True}, STANDS),
    ({"kind": "elf", "file": f"{SITE}/_C.so", "needs": ["libcuda.so"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_fa2.so", "needs": ["libc.so.6"], "needs_not": ["cudnn"]}, STANDS),
    ({"kind": "elf", "file": f"{SITE}/_fa2.so", "needs_not": ["libc.so"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_fa2.so", "sass": ["sm_80", "sm_90a"], "sass_not": ["sm_90"], "ptx": ["compute_80"], "ptx_not": ["compute_90"]}, STANDS),
    ({"kind": "elf", "file": f"{SITE}/_fa2.so", "sass": ["sm_86"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_fa2.so", "sass_not": ["sm_80"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_fa2.so", "ptx_not": ["compute_80"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/gone.so", "needs_not": ["cudnn"]}, DRIFTED),
    ({"kind": "elf", "file": f"{SITE}/_cut.so", "needs_not": ["cudnn"]}, CANNOT),
    ({"kind": "elf", "file": f"{SITE}/engine.py", "needs_not": ["cudnn"]}, CANNOT),
    ({"kind": "flags", "words": ["./m", "--max-num-seqs", "4"], "outcome": "accepted", "sets": {"max_num_seqs": 4}}, STANDS),
    ({"kind": "flags", "words": ["./m", "--max-num-seqs", "4"], "outcome": "accepted", "sets": {"max_num_seqs": 8}}, DRIFTED),
    ({"kind": "flags", "words": ["./m"], "outcome": "accepted", "sets": {"swap_space": None}}, DRIFTED),
    ({"kind": "flags", "words": ["./m", "--swap-space", "4"], "outcome": "refused", "says": ["unrecognized arguments: --swap-space"]}, STANDS),
    ({"kind": "flags", "words": ["./m", "--swap-space", "4"], "outcome": "accepted"}, DRIFTED),
    ({"kind": "flags", "words": ["./m"], "outcome": "refused"}, DRIFTED),
    ({"kind": "flags", "words": ["--model", "./m"], "outcome": "warned", "says": ["--model will go"]}, STANDS),
    ({"kind": "flags", "words": ["./m"], "outcome": "warned", "says": ["will be removed"]}, DRIFTED),
    ({"kind": "flags", "words": ["--help"], "outcome": "shown", "says": ["--max-num-seqs"]}, STANDS),
    ({"kind": "flags", "form": "module", "words": ["stray"], "outcome": "accepted"}, STANDS),
    ({"kind": "flags", "form": "demo", "words": [], "outcome": "accepted"}, CANNOT),
    ({"kind": "value", "of": "vllm.engine.Queue.limit", "is": 7, "at_least": 7, "at_most": 7}, STANDS),
    ({"kind": "value", "of": "vllm.engine.Queue.limit", "is": 8}, DRIFTED),
    ({"kind": "value", "of": "vllm.engine.Queue.limit", "is_not": 7}, DRIFTED),
    ({"kind": "value", "of": "vllm.engine.Queue.limit", "at_least": 8}, DRIFTED),
    ({"kind": "value", "of": "vllm.engine.Queue.limit", "at_most": 6}, DRIFTED),
    ({"kind": "value", "of": "vllm.engine.Queue.put", "argument": "block", "is": True}, STANDS),
    ({"kind": "value", "of": "vllm.engine.Queue.put", "argument": "block", "is": 1}, DRIFTED),
    ({"kind": "value", "of": "vllm.engine.Queue.put", "argument": "timeout", "is": None}, STANDS),
    ({"kind": "value", "of": "vllm.engine.Queue.put", "argument": "item", "is": "no default"}, STANDS),
    ({"kind": "value", "of": "vllm.engine.Queue.put", "argument": "gone", "is": 1}, DRIFTED),
    ({"kind": "value", "of": "vllm.engine.size", "call": [], "has": ["a"], "lacks": ["c"]}, STANDS),
    ({"kind": "value", "of": "vllm.engine.size", "call": [], "has": ["c"]}, DRIFTED),
    ({"kind": "value", "of": "vllm.engine.size", "call": [], "lacks": ["a"]}, DRIFTED),
    ({"kind": "value", "of": "vllm.engine.Queue.put", "call": [1, 2], "fails": ["RuntimeError", "no driver"]}, STANDS),
    ({"kind": "value", "of": "vllm.engine.Queue.put", "call": [1, 2], "fails": ["ValueError"]}, DRIFTED),
    ({"kind": "value", "of": "vllm.engine.Queue.put", "call": [1, 2], "is": None}, DRIFTED),
    ({"kind": "value", "of": "vllm.engine.Queue.put", "call": [1, 2], "lacks": ["libcuda"]}, STANDS),
    ({"kind": "value", "of": "vllm.engine.size", "call": [], "fails": ["RuntimeError"]}, DRIFTED),
    ({"kind": "value", "of": "vllm.attention.backends", "missing": True}, STANDS),
    ({"kind": "value", "of": "vllm.engine.gone", "missing": True}, STANDS),
    ({"kind": "value", "of": "vllm.engine.size", "missing": True}, DRIFTED),
    ({"kind": "value", "of": "vllm.engine.gone", "is": 1}, DRIFTED),
    ({"kind": "value", "of": "nonesuch.version", "is": "1"}, CANNOT),
    ({"kind": "value", "of": "nonesuch.version", "missing": True}, CANNOT),
    ({"kind": "fact", "name": "registered", "given": {"architecture": "A"}, "field": "there", "is": True}, CANNOT),
    ({"kind": "fact", "name": "registered", "given": {"architecture": "A"}, "field": "there", "fails": ["No module named 'vllm.model_executor'"]}, STANDS),
    ({"kind": "fact", "name": "page", "given": {"kv_heads": 4}, "field": "bytes_per_token", "is": 4096}, CANNOT),
    ({"kind": "model", "name": "Qwen/Qwen3.5-7B", "exists": False}, STANDS),
    ({"kind": "model", "name": "Qwen/Qwen3.5-7B"}, DRIFTED),
    ({"kind": "model", "name": "Qwen/Qwen3.5-4B", "exists": False}, DRIFTED),
    ({"kind": "model", "name": "Qwen/Qwen3.5-4B", "field": "text_config.num_hidden_layers", "is": 32}, STANDS),
    ({"kind": "model", "name": "Qwen/Qwen3.5-4B", "field": "text_config.num_hidden_layers", "is": 28}, DRIFTED),
    ({"kind": "model", "name": "Qwen/Qwen3.5-7B", "field": "size", "is": "7B"}, DRIFTED),
    ({"kind": "memory", "model": "Qwen/Qwen3.5-4B", "field": "kv_bytes_per_token", "is": 32768}, STANDS),
    ({"kind": "memory", "model": "Qwen/Qwen3.5-4B", "field": "kv_bytes_per_token", "is": 131072}, DRIFTED),
    ({"kind": "memory", "model": "Qwen/Qwen3.5-4B", "field": "block_size", "is": 528}, STANDS),
    ({"kind": "memory", "model": "Qwen/Qwen3.5-4B", "field": "state_bytes_per_sequence", "is": 24 * 2146304}, STANDS),
    ({"kind": "memory", "model": "Qwen/Qwen3.5-4B", "field": "weight_bytes", "at_most": 1e9}, DRIFTED),
    ({"kind": "memory", "model": "Qwen/Qwen3.5-7B", "field": "weight_bytes", "at_most": 1e9}, CANNOT),
    ({"kind": "table", "table": "cards", "row": {"id": "geforce-rtx-4090"}, "field": "cc", "is": "8.9"}, STANDS),
    ({"kind": "table", "table": "cards", "row": {"id": "geforce-rtx-4090"}, "field": "cc", "is": "8.6"}, DRIFTED),
    ({"kind": "table", "table": "cards", "row": {"id": "geforce-rtx-4090"}, "field": "tflops.bf17", "is": 1}, DRIFTED),
    ({"kind": "table", "table": "cards", "row": {"cc": "8.9"}, "field": "cc", "is": "8.9"}, DRIFTED),
    ({"kind": "table", "table": "cards", "row": {"cc": "8.8"}, "absent": True}, STANDS),
    ({"kind": "table", "table": "cards", "row": {"cc": "8.9"}, "absent": True}, DRIFTED),
    ({"kind": "table", "table": "catalogue/floors", "row": {"name": "lowest vLLM"}, "field": "value", "is": "0.17.0"}, STANDS),
    ({"kind": "table", "table": "no_such", "row": {}, "absent": True}, CANNOT),
    ({"kind": "runs", "code": ["sm_80"], "card": "8.6", "is": "native"}, STANDS),
    ({"kind": "runs", "code": ["sm_86"], "card": "8.0", "is": "native"}, DRIFTED),
    ({"kind": "runs", "ptx": ["compute_80"], "card": "9.0", "is": "ptx-jit"}, STANDS),
    ({"kind": "answer", "machine": H200, "ask": "http GET /health", "is": "HTTP 200"}, STANDS),
    ({"kind": "answer", "machine": H200, "ask": "http GET /health", "has": ["healthy"]}, DRIFTED),
    ({"kind": "answer", "machine": H200, "ask": "read {work}/jobs/server.log", "in_order": ["KV cache size", "Starting vLLM server"]}, STANDS),
    ({"kind": "answer", "machine": H200, "ask": "read {work}/jobs/server.log", "in_order": ["Starting vLLM server", "KV cache size"]}, DRIFTED),
    ({"kind": "answer", "machine": H200, "ask": "http GET /docs", "is": "HTTP 200"}, CANNOT),
    ({"kind": "answer", "machine": "cpu-2core", "ask": "run nvidia-smi", "lacks": ["CUDA Version"]}, CANNOT),
    ({"kind": "answer", "machine": "cpu-2core", "ask": "run nvidia-smi", "has": ["no such program"]}, STANDS),
    ({"kind": "answer", "machine": "no-such-machine", "ask": "http GET /health", "is": "HTTP 200"}, CANNOT),
    ({"kind": "answer", "ask": "http GET /health", "is": "HTTP 200"}, CANNOT),
]  # fmt: skip


@pytest.fixture(scope="module")
def readings(target: Environment) -> list[Reading]:
    """Every case, the target's interpreter started once for all of them."""
    probes = [READ.validate_python(row) for row, _ in CASES]
    target.ask(question for one in probes for question in one.questions())
    return [one.judge(target) for one in probes]


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: f"{CASES[at][0]['kind']}-{at}")
def test_a_probe_says_what_is_so(at: int, readings: list[Reading]) -> None:
    reading = readings[at]
    assert reading.outcome is CASES[at][1], reading
    assert reading.expected
    assert reading.origin
    assert reading.seen or reading.outcome is STANDS


def test_every_kind_is_seen_to_stand_and_to_drift() -> None:
    for kind in KINDS:
        name = kind.model_fields["kind"].annotation.__args__[0]  # type: ignore[union-attr]
        outcomes = {outcome for row, outcome in CASES if row["kind"] == name}
        # What a fact stands or drifts over takes a real vLLM: see test_verify.
        assert outcomes >= ({STANDS} if name == "fact" else {STANDS, DRIFTED}), name


def test_what_is_said_of_flags_is_the_line_of_the_error(readings: list[Reading]) -> None:
    at = next(at for at, (row, _) in enumerate(CASES) if row.get("outcome") == "refused")
    assert readings[at].seen.startswith("refused error: unrecognized arguments: --swap-space")


@pytest.mark.parametrize(("vllm", "device", "version", "build", "is_for"), [
    ("", "", "0.19.1", "cpu", True), ("==0.19.1", "", "0.19.1", "cuda", True), ("==0.19.1", "", "0.32.0", "cuda", False),
    (">=0.17", "cuda", "0.32.0", "cuda", True), ("", "cuda", "0.19.1", "cpu", False), ("<0.33", "", "0.33.0rc1", "cpu", False),
])  # fmt: skip
def test_a_probe_says_for_which_targets_it_is(
    vllm: str, device: str, version: str, build: str, is_for: object
) -> None:
    probe = READ.validate_python({"kind": "files", "path": "{site}/a", "vllm": vllm, "device": device})
    assert probe.is_for(version, build) is is_for
