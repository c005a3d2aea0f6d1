"""Real server logs, and the lines around which a reader of logs goes wrong."""

from pathlib import Path

import pytest

from runbook.parse.vllm_log import KvCache, errors, is_shadow, kv_cache, plain, root_line

LOGS = Path(__file__).parents[1] / "data" / "logs"
UNPACK = "ValueError: too many values to unpack (expected 2)"
LSCPU = "subprocess.CalledProcessError: Command 'lscpu --json --extended=CPU,CORE,NODE --online' returned non-zero exit status 127."

# log: root line, lines at level ERROR, KV cache
REAL: dict[str, tuple[str | None, int, KvCache]] = {
    "final-q3-eager": (None, 0, KvCache(1_048_576, 512.0, None)),
    "q35-eager-warm-uni-lmonly": (None, 0, KvCache(932_010, 455.08, 384)),
    "q35-on-0.19.1-fails-server": (UNPACK, 44, KvCache(None, None, 272)),
    "q35-on-0.19.1-fails-llm-mp1": (UNPACK, 44, KvCache(None, None, 272)),
    "q35-on-0.19.1-fails-llm-mp0": (UNPACK, 0, KvCache(None, None, 272)),
    "headdim32-engine-dies-on-first-request-0.32.0": ("RuntimeError: Unexpected head dim size, 32", 185, KvCache(4_916_782, 2400.77, None)),
    "q35-eager-no-lscpu": (LSCPU, 43, KvCache(None, None, None)),
    # SIGKILL leaves no exception of its own; what the API server logs is the shadow.
    "q35-eager-warm-killcore": (None, 8, KvCache(932_010, 455.08, 384)),
}  # fmt: skip


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text(encoding="utf-8")


def test_every_log_is_judged() -> None:
    assert {path.stem for path in LOGS.glob("*.log")} == set(REAL)


@pytest.mark.parametrize("name", REAL)
def test_root_line(name: str) -> None:
    assert root_line(log(name)) == REAL[name][0]


@pytest.mark.parametrize("name", REAL)
def test_errors(name: str) -> None:
    found = errors(log(name))
    assert len(found) == REAL[name][1]
    assert not any(line.startswith("(") or " ERROR " in line[:20] for line in found)


@pytest.mark.parametrize("name", REAL)
def test_kv_cache(name: str) -> None:
    assert kv_cache(log(name)) == REAL[name][2]


@pytest.mark.parametrize("name", [name for name, (root, _, _) in REAL.items() if root])
def test_the_root_is_found_wherever_the_log_begins_before_it(name: str) -> None:
    """A log whose head was rotated away still names its root as long as the root is there."""
    text, root = log(name), REAL[name][0]
    assert root
    lines = text.splitlines()
    place = next(index for index, line in enumerate(lines) if root in line)
    assert root_line("\n".join(lines[place:])) == root
    assert root_line("\n".join(lines[:place])) is None


@pytest.mark.parametrize(
    ("line", "root"),
    [
        # H200 start logs and vLLM's own words, with and without their tag.
        ("(EngineCore_DP0 pid=77) ERROR 11-30 05:00:00 [core.py:1100] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
        ("(Worker_TP1_EP1 pid=9) ERROR 11-30 05:00:00 [multiproc_executor.py:7] torch.distributed.DistBackendError: NCCL error in: x.cpp:93", "torch.distributed.DistBackendError: NCCL error in: x.cpp:93"),
        ("ImportError: libcudart.so.12: cannot open shared object file: No such file or directory", "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory"),
        ("(APIServer pid=1) pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig", "pydantic_core._pydantic_core.ValidationError: 1 validation error for VllmConfig"),
        ("OSError: [Errno 98] Address already in use", "OSError: [Errno 98] Address already in use"),
        ("AssertionError", "AssertionError"),
        ("\x1b[31m(EngineCore pid=1)\x1b[0m ERROR 11-30 05:00:00 [core.py:1] ValueError: x", "ValueError: x"),
        ("[rank1]: RuntimeError: x", "RuntimeError: x"),
        ("api_server.py: error: unrecognized arguments: --swap-space 4", "api_server.py: error: unrecognized arguments: --swap-space 4"),
        ("vllm serve: error: argument --max-model-len: invalid value", "vllm serve: error: argument --max-model-len: invalid value"),
        ("Fatal Python error: Illegal instruction", "Fatal Python error: Illegal instruction"),
        ("/usr/bin/python: symbol lookup error: /x/libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent", "/usr/bin/python: symbol lookup error: /x/libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent"),
        # Shadows and talk
        ("RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}", None),
        ("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.", None),
        ("(APIServer pid=1) WARNING 11-30 05:59:37 [system_utils.py:255] Found ulimit of 20000 and failed to automatically increase with error current limit exceeds maximum limit. This can cause fd limit errors.", None),
        ("(APIServer pid=1) INFO 11-30 05:59:37 [utils.py:1] non-default args: {'raise_on': 'ValueError: x'}", None),
        ("/x/torch/cuda/__init__.py:61: FutureWarning: The pynvml package is deprecated.", None),
        ("FutureWarning: The pynvml package is deprecated.", None),
        # A client's fault, which 0.19.1 logs as if it were its own.
        ("(APIServer pid=31617) vllm.exceptions.VLLMValidationError: max_tokens=99999cannot be greater than max_model_len=max_total_tokens=2048.", None),
        ("Traceback (most recent call last):", None),
        ('  File "/x/errors.py", line 3, in raise_ValueError', None),
        ("    raise ValueError('x')", None),
        ("The server may raise ValueError: too many", None),
        ('INFO:     127.0.0.1:5 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error', None),
        ("", None),
    ],
)  # fmt: skip
def test_lines(line: str, root: str | None) -> None:
    assert root_line(line) == root
    assert root_line(f"(EngineCore pid=1) INFO 11-30 05:00:00 [x.py:1] up\n{line}\nbye\n") == root


def test_the_first_cause_wins_over_what_it_caused() -> None:
    text = "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\nRuntimeError: b\n"
    assert root_line(text) == "KeyError: 'a'"


def test_plain() -> None:
    assert plain("(EngineCore pid=12) ERROR 11-30 05:00:00 [core.py:1100]   File x") == "  File x"
    assert plain("\x1b[1;36m(APIServer pid=1)\x1b[0;0m INFO 11-30 05:00:00 [a.py:1] hi ") == "hi"
    assert plain("no tag") == "no tag"


def test_kv_cache_of_an_h200() -> None:
    """As logged there (see shared/facts/h200.md)."""
    text = (
        "(EngineCore pid=1) INFO 11-30 04:17:00 [config.py:281] Setting attention block size to 272 tokens to ensure that attention page size is >= mamba page size.\n"
        "(EngineCore pid=1) INFO 11-30 04:18:00 [kv_cache_utils.py:1316] GPU KV cache size: 861,968 tokens\n"
        "(EngineCore pid=1) INFO 11-30 04:18:00 [kv_cache_utils.py:1321] Maximum concurrency for 32,768 tokens per request: 102.23x\n"
    )
    assert kv_cache(text) == KvCache(861_968, 102.23, 272)
    assert kv_cache(text + text.replace("861,968", "934,320").replace("102.23", "110.83")) == KvCache(
        934_320, 110.83, 272
    )


def test_a_shadow_is_told_from_its_cause() -> None:
    assert is_shadow("RuntimeError: Engine core initialization failed. See root cause above.")
    assert not is_shadow("ValueError: Found 1 <|image_pad|> tokens in the text but no images were passed.")
