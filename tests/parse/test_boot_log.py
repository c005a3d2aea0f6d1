"""Logs of real starts: which line ends which part, what was compiled, and what a clock of whole seconds can tell."""

import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.parse import boot_log, caches

ROOT = Path(__file__).parents[1] / "data"
H200 = (ROOT / "boot" / "h200-0.19.1.log").read_text(encoding="utf-8")
EVERY = ("imports", "inspection", "engine process", "device")

# log: parts that end, lines of compiling (a wording a line), graphs loaded and compiled
REAL: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "logs/final-q3-eager": ((*EVERY, "weights", "KV cache", "warm-up run", "engine", "API server"), ()),
    "logs/q35-eager-warm-uni-lmonly": ((*EVERY, "weights", "KV cache", "engine", "API server"), ()),
    "logs/q35-on-0.19.1-fails-server": ((*EVERY, "weights"), ()),
    "boot/0.19.1-cpu-compiles": ((*EVERY, "KV cache", "warm-up run", "engine", "API server"), ("saved AOT",)),
    "boot/0.19.1-cpu-compiles-again": (
        (*EVERY, "weights", "KV cache", "warm-up run", "engine", "API server"),
        ("Compiling model again", "saved AOT"),
    ),
    "boot/0.32.0-cpu-compiles": (
        (*EVERY, "weights", "warm-up run", "KV cache", "engine", "API server"),
        ("saved AOT",),
    ),
    "boot/0.32.0-cpu-compiles-again": (
        (*EVERY, "weights", "warm-up run", "KV cache", "engine", "API server"),
        ("Compiling model again", "saved AOT"),
    ),
}


def log(name: str) -> str:
    return (ROOT / f"{name}.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REAL)
def test_the_parts_of_a_real_start(name: str) -> None:
    assert tuple(one.name for one in boot_log.steps(log(name))) == REAL[name][0]


@pytest.mark.parametrize("name", REAL)
def test_what_was_compiled(name: str) -> None:
    found = boot_log.compile_lines(log(name))
    assert len(found) == len(REAL[name][1]), found
    for line, word in zip(found, REAL[name][1], strict=True):
        number, _, text = line.partition(": ")
        assert text.startswith(word) or word in text[:40]
        assert text[:40] in log(name).splitlines()[int(number) - 1]


def test_an_h200s_start() -> None:
    steps = {one.name: one for one in boot_log.steps(H200)}
    assert tuple(steps) == (
        *EVERY, "weights", "torch.compile", "first run", "KV cache", "graphs", "engine", "API server",
    )  # fmt: skip
    assert (steps["torch.compile"].took_s, steps["first run"].took_s, steps["graphs"].took_s) == (
        29.02,
        105.74,
        3.0,
    )
    assert steps["first run"].at.time() == datetime.time(10, 30, 47)
    # The backend that spares FlashInfer's compile, and one graph compiled, none loaded.
    said = boot_log.said(H200)
    assert (said.backend, said.compiled, said.loaded) == ("Triton/FLA", 1, 0)
    assert said.folder.endswith("/rank_0_0/backbone")
    after = boot_log.ready_line(H200)
    assert after is not None
    assert "Application startup complete" in H200.splitlines()[after - 1]
    assert boot_log.compile_lines(H200, after=after) == ()


@pytest.mark.parametrize(
    ("line", "compiles"),
    [
        # docs/measurements.md and the sources of both releases
        ("(EngineCore pid=1) INFO 11-30 04:10:09 [gdn_linear_attn.py:141] FlashInfer GDN prefill kernel is JIT-compiled; first run may take a while to compile.", True),
        ("(Worker pid=1) WARNING 11-30 04:10:09 [jit_monitor.py:140] Triton kernel JIT compilation during inference: _causal_conv1d_fwd. This causes a latency spike; consider extending warmup to cover this shape/config.", True),
        ("(EngineCore pid=1) INFO 11-30 04:10:09 [backends.py:390] Compiling a graph for compile range (1, 8192) takes 25.22 s", True),
        ("(EngineCore pid=1) INFO 11-30 04:10:09 [backends.py:390] [backbone] Compiling a graph for compile range (1, 8192) takes 25.22 s", True),
        ("[3/34] /usr/local/cuda/bin/nvcc --generate-dependencies-with-compile -c gdn.cu", True),
        ("(EngineCore pid=1) INFO 11-30 04:10:09 [backends.py:285] Directly load the compiled graph(s) for compile range (1, 8192) from the cache, took 2.980 s", False),
        ("(EngineCore pid=1) INFO 11-30 04:10:09 [decorators.py:305] Directly load AOT compilation from path /x/model", False),
        ("(APIServer pid=1) WARNING 11-30 04:10:09 [vllm.py:848] Enforce eager set, disabling torch.compile and CUDAGraphs.", False),
        ("(EngineCore pid=1) INFO 11-30 04:10:09 [gdn_linear_attn.py:147] Using Triton/FLA GDN prefill kernel", False),
        ('(APIServer pid=1) INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK', False),
    ],
)  # fmt: skip
def test_lines_of_work_and_lines_of_loading(line: str, compiles: bool) -> None:  # noqa: FBT001 - a table
    assert bool(boot_log.compile_lines(line)) is compiles


@pytest.mark.parametrize(
    ("line", "at", "fine_s"),
    [
        ("(EngineCore pid=1) INFO 11-30 10:30:47 [x.py:1] a", (11, 30, 10, 30, 47, 0), 1.0),
        ("W1130 17:28:24.311000 29368 torch/utils/cpp_extension.py:118] a", (11, 30, 17, 28, 24, 311_000), 0.001),
        ("[W1130 17:28:34.442014606 utils.cpp:103] Warning: NUMA", (11, 30, 17, 28, 34, 442_014), 0.001),
        ("(EngineCore pid=1) 2026-11-30 10:30:57,775 - INFO - autotuner.py:262", (11, 30, 10, 30, 57, 775_000), 0.001),
        ("INFO 02-29 00:00:00 a leap year's day", (2, 29, 0, 0, 0, 0), 1.0),
    ],
)  # fmt: skip
def test_stamps(line: str, at: tuple[int, ...], fine_s: float) -> None:
    assert boot_log.stamp(line) == (datetime.datetime(boot_log.LEAP_YEAR, *at), fine_s)  # type: ignore[arg-type]  # noqa: DTZ001


@pytest.mark.parametrize("line", ["", "INFO 13-45 99:99:99 x", "a line", "12-3", "INFO 02-30 10:00:00 x"])
def test_no_stamp(line: str) -> None:
    assert boot_log.stamp(line) is None


@given(st.text(max_size=300))
def test_any_text_is_read(text: str) -> None:
    for one in boot_log.steps(text):
        assert one.end <= len(text.encode(errors="surrogatepass"))
    boot_log.said(text)
    boot_log.last_stamp(text)
    assert (boot_log.ready_line(text) or 0) <= len(text.splitlines())


@pytest.mark.parametrize(
    ("path", "family"),
    [
        ("triton/ABC/chunk_fwd_kernel_o.cubin", "Triton chunk_fwd_kernel_o"),
        ("triton/ABC/chunk_fwd_kernel_o.json", ""),
        (
            ".cache/flashinfer/0.6.6/90a/cached_ops/gdn_prefill_sm90/gdn_3.cuda.o",
            "FlashInfer gdn_prefill_sm90",
        ),
        (".cache/flashinfer/0.6.6/90a/cached_ops/gdn_prefill_sm90/build.ninja", ""),
        ("inductor/py/cpyy.main.so", "inductor"),
        ("inductor/py/cpyy.main.cpp", ""),
        ("inductor/triton/0/ABC/triton_poi_fused_0.cubin", "Triton triton_poi_fused_0"),
        ("vllm/torch_compile_cache/torch_aot_compile/9b/rank_0_0/model", caches.GRAPHS),
        ("vllm/torch_compile_cache/torch_aot_compile/9b/inductor_cache/ab/c.so", "inductor"),
        ("vllm/modelinfos/x.json", ""),
        ("", ""),
    ],
)
def test_what_a_cache_file_is(path: str, family: str) -> None:
    assert caches.family(path) == family


def test_graphs_are_no_kernels() -> None:
    made = caches.families(["inductor/a/b.so", "inductor/a/c.so", "vllm/torch_compile_cache/x/model", "triton/x/y.json"])  # fmt: skip
    assert made == {"inductor": 2, caches.GRAPHS: 1}
    assert caches.kernels(made) == 2
