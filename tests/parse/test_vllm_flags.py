"""A command line of vLLM judged word by word. ``benchmarks/judge_flags.py`` compares 246 of them with vLLM's own parser."""

import json
import re
import shlex
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version

from runbook import pins, tables
from runbook.parse import record, vllm_flags
from runbook.parse.vllm_flags import Command, Judged, Option, Outcome

RELEASES = {
    name: vllm_flags.shipped((pins.STACKS / name / "flags.json").read_text(encoding="utf-8"))
    for name in pins.names()
}
KNOWN = {name: one.options for name, one in RELEASES.items() if one}
GPU = KNOWN["vllm-0.19.1-cu128"]
GONE = tables.vllm_flags()


def judged(line: str, known: tuple[Option, ...] = GPU) -> tuple[Judged, ...]:
    asked = vllm_flags.command(shlex.split(line))
    assert asked is not None
    return vllm_flags.judge(asked, known, GONE)


def one(flags: str) -> Judged:
    """The one flag of a command."""
    found = judged(f"vllm serve M {flags}")
    assert found[0].option == "model_tag"
    assert len(found) == 2, found
    return found[1]


def test_every_stack_ships_the_list_of_its_release() -> None:
    for name, found in RELEASES.items():
        stack = pins.stack(name)
        assert found is not None, name
        assert (found.version, found.distribution) == (stack.vllm, stack.distribution)
        assert len(found.options) > 200
        assert re.fullmatch("[0-9a-f]{64}", found.sha256)


def test_the_gpu_build_and_the_cpu_build_of_a_release_take_the_same_options() -> None:
    """Measured; it is what lets a machine without a GPU make the list of the GPU build."""
    assert KNOWN["vllm-0.19.1-cu128"] == KNOWN["vllm-0.19.1-cpu"]


@pytest.mark.parametrize("flag", GONE)
def test_a_flag_said_to_be_gone_is_gone_and_what_took_its_place_is_there(flag: str) -> None:
    """In every release shipped, for the flag and for each flag that the row names."""
    row = GONE[flag]
    for name, known in KNOWN.items():
        names = {each for option in known for each in option.names}
        back = "back" in row and Version(pins.stack(name).vllm) >= Version(row["back"])
        assert (flag in names) == back, name
        said = re.findall(r"--[a-z][a-z0-9-]*", f"{row.get('became', '')} {row['now']}")
        assert set(said) <= names, name
    assert row["source"]


@pytest.mark.parametrize(
    ("flags", "option", "outcome"),
    [
        ("--max-model-len 32768", "--max-model-len", Outcome.OK),
        ("--max_model_len=32k", "--max-model-len", Outcome.OK),
        ("--max-model 8K", "--max-model-len", Outcome.OK),
        ("--max-model-len 8.5K", "--max-model-len", Outcome.VALUE),
        ("--max-model-len auto", "--max-model-len", Outcome.OK),
        ("--max-num-batched-tokens auto", "--max-num-batched-tokens", Outcome.VALUE),
        ("--gpu-memory-utilization 0.9", "--gpu-memory-utilization", Outcome.DEFAULT),
        ("--gpu-memory-utilization .90", "--gpu-memory-utilization", Outcome.DEFAULT),
        ("--gpu-memory-utilization high", "--gpu-memory-utilization", Outcome.VALUE),
        ("--enforce-eager", "--enforce-eager", Outcome.OK),
        ("--no-enforce-eager", "--no-enforce-eager", Outcome.DEFAULT),
        ("--enforce-eager=true", "--enforce-eager", Outcome.VALUE),
        ("-tp 2", "-tp", Outcome.OK),
        ("-tp=1", "-tp", Outcome.DEFAULT),
        ("-tp2", "", Outcome.UNKNOWN),
        ("-O3", "--optimization-level", Outcome.OK),
        ("-O 3", "--optimization-level", Outcome.OK),
        ("-O", "", Outcome.UNKNOWN),
        ("--compilation-config.mode 3", "--compilation-config", Outcome.OK),
        ("--compilation_config.mode=3", "--compilation-config", Outcome.OK),
        ("--compilation-config.mode", "--compilation-config", Outcome.MISSING),
        ("--compilation-config nonsense", "--compilation-config", Outcome.VALUE),
        ("--seed.x 1", "--seed", Outcome.VALUE),
        ("--seed -1", "--seed", Outcome.OK),
        ("--seed 0", "--seed", Outcome.DEFAULT),
        ("--seed", "--seed", Outcome.MISSING),
        ("--quantization None", "--quantization", Outcome.OK),
        ("--dtype bf16", "--dtype", Outcome.VALUE),
        ("--dtype auto", "--dtype", Outcome.DEFAULT),
        ("--moe-backend FlashInfer-CUTLASS", "--moe-backend", Outcome.OK),
        ("--served-model-name a b", "--served-model-name", Outcome.OK),
        ("--swap-space 4", "", Outcome.REMOVED),
        ("--guided-decoding-backend xgrammar", "", Outcome.RENAMED),
        ("--trust", "", Outcome.AMBIGUOUS),
        ("--max-model-lenght 1", "", Outcome.UNKNOWN),
        ("--config=a.yaml", "--config", Outcome.IGNORED),
        ("--limit-mm-per-prompt '{}'", "--limit-mm-per-prompt", Outcome.DEFAULT),
    ],
)
def test_one_flag(flags: str, option: str, outcome: Outcome) -> None:
    found = one(flags)
    assert (found.option, found.outcome) == (option, outcome), found
    assert found.refused is (outcome in vllm_flags.REFUSED)
    assert found.says or outcome is Outcome.OK


def test_an_unknown_flag_names_the_nearest_and_a_removed_one_says_what_to_do() -> None:
    assert one("--max-model-lenght 1").says == "the nearest that exists is --max-model-len"
    assert one("--qqqqqq").says == "nothing like it exists"
    assert one("--swap-space 4").says.startswith("gone since 0.18.0; leave it out")
    assert one("--worker-use-ray").says == "it is --distributed-executor-backend now; give ray as its value"


def test_a_flag_that_another_release_has() -> None:
    asked = vllm_flags.command(["vllm", "serve", "M", "--calculate-kv-scales"])
    assert asked is not None
    found = vllm_flags.judge(
        asked, KNOWN["vllm-0.32.0-cpu"], {"--calculate-kv-scales": {"elsewhere": "0.19.1"}}
    )
    assert (found[1].outcome, found[1].says) == (Outcome.UNKNOWN, "vLLM 0.19.1 has it, this release does not")


def test_words_without_a_flag() -> None:
    assert [each.outcome for each in judged("vllm serve M more")] == [Outcome.OK, Outcome.EXTRA]
    module = "python -m vllm.entrypoints.openai.api_server --model M"
    assert [each.outcome for each in judged(f"{module} --enforce-eager true")] == [Outcome.OK, Outcome.OK, Outcome.IGNORED]  # fmt: skip
    assert judged("vllm serve M --enforce-eager true")[2].says.endswith("--enforce-eager takes no value")
    assert judged("vllm serve --model M")[0].outcome is Outcome.DEPRECATED
    assert judged("vllm serve --served-model-name s")[0].outcome is Outcome.MISSING


@pytest.mark.parametrize(
    ("line", "form", "words", "variables"),
    [
        ("vllm serve M --seed 1", "serve", ("M", "--seed", "1"), ()),
        ("A=1 B='x y' /v/bin/vllm serve M", "serve", ("M",), ("A=1", "B=x y")),
        (
            "env A=1 python3 -u -m vllm.entrypoints.openai.api_server --seed 1",
            "module",
            ("--seed", "1"),
            ("A=1",),
        ),
        ("python -m vllm.entrypoints.cli.main serve M", "serve", ("M",), ()),
        ("--seed 1", "flags", ("--seed", "1"), ()),
    ],
)
def test_a_command_is_taken_apart(
    line: str, form: str, words: tuple[str, ...], variables: tuple[str, ...]
) -> None:
    assert vllm_flags.command(shlex.split(line)) == Command(variables, form, words)


@pytest.mark.parametrize(
    "line", ["", "ls -l", "vllm bench serve", "python -m vllm", "python -m", "env", "A=1"]
)
def test_what_starts_no_server_is_none(line: str) -> None:
    assert vllm_flags.command(shlex.split(line)) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ExecStart=/v/bin/vllm serve M \\\n    --seed 1\n", ("M", "--seed", "1")),
        ("ExecStart=-/bin/bash -lc 'cd /x && exec /v/bin/vllm serve M'\n", ("M",)),
        ("ExecStart=/v/bin/python -m vllm.entrypoints.openai.api_server --port 1\n", ("--port", "1")),
    ],
)
def test_a_unit(text: str, words: tuple[str, ...]) -> None:
    found = vllm_flags.unit(f"[Service]\n{text}")
    assert found is not None
    assert found.words == words


@pytest.mark.parametrize(
    "text", [None, "", "ExecStart=/bin/true", "ExecStart=--seed 1", "ExecStart='", "[Unit]\n"]
)
def test_a_unit_that_starts_something_else(text: str | None) -> None:
    assert vllm_flags.unit(text) is None


def test_a_config_file() -> None:
    text = "# ours\nmodel: Q  # which\nseed: 1\nenforce-eager: true\nasync_scheduling: false\nserved-model-name:\n  - a\n  - 'b'\ncompilation-config:\n  mode: 3\n  cudagraph_mode: FULL\nhost: \"127.0.0.1\"\n- stray\n"
    words, left = vllm_flags.config_words(text)
    assert words == ("--model", "Q", "--seed", "1", "--enforce-eager", "--served-model-name", "a", "b", "--compilation-config", "{}", "--host", "127.0.0.1")  # fmt: skip
    assert left == ("async_scheduling: false", "- stray")


words = st.lists(
    st.one_of(
        st.text(max_size=12),
        st.sampled_from([name for option in GPU for name in option.names][:60]),
        st.sampled_from(("-O", "--", "-", "=", "--=", "--.", "-1", "--seed=", "--seed.", "-.x", "--no-", "9" * 5000, "1e999", "{", "\N{SUPERSCRIPT TWO}", "vllm", "serve", "-m", "--config")),
    ),
    max_size=8,
)  # fmt: skip


@settings(max_examples=400, deadline=None, derandomize=True)
@given(words=words, form=st.sampled_from(("serve", "module", "flags")))
def test_odd_words_never_raise(words: list[str], form: str) -> None:
    vllm_flags.command(words)
    for known in (GPU, ()):
        for found in vllm_flags.judge(Command((), form, tuple(words)), known, GONE):
            assert found.word or not found.refused or "" in words


odd_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(("names", "takes", "choices", "nargs", "options", "version", "made", "distribution", "options_sha256", "default")), inner, max_size=8),
    max_leaves=12,
)  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True)
@given(value=odd_json, text=st.text(max_size=60))
def test_odd_lists_never_raise(value: Any, text: str) -> None:
    assert isinstance(vllm_flags.options(value), tuple)
    found = vllm_flags.shipped(json.dumps(value))
    assert found is None or found.options
    assert vllm_flags.shipped(text) is None
    vllm_flags.config_words(text)
    vllm_flags.unit(f"ExecStart={text}")
    record.sizes(text)


def test_no_list_is_none() -> None:
    assert vllm_flags.shipped(None) is None
    assert vllm_flags.shipped("{}") is None
    assert vllm_flags.shipped('{"options": [], "distribution": "a", "version": "1", "made": "x", "options_sha256": "y"}') is None  # fmt: skip


def test_sizes_of_a_record() -> None:
    text = 'vllm/_C.abi3.so,sha256=a,12\n"a,b.so",sha256=c,3\n../../bin/vllm,sha256=x,200\nvllm/x.so,,\n/etc/y.so,h,4\n'
    assert record.sizes(text) == {"vllm/_C.abi3.so": 12, "a,b.so": 3}
