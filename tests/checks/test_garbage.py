"""No reading can make a check raise, and none that says nothing can make it green.

``engine.judge`` turns an exception into an unknown, so what is asked here is more: that a check which could not read
what it judges by does not say ok, and that the answers a real machine may well give do not break it.
"""

import copy
import math
from collections.abc import Iterator, Mapping
from typing import Any

import cases
import cases_model
import pytest
from host import CPU, GPU, OK, Case, Host, passed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runbook.checks import ALL, BY_ID
from runbook.engine import judge
from runbook.model import Check, Finding
from runbook.probe import Ran, Reply

CASES = cases.ALL
BROKE = "the check itself broke"

# Checks for which a reading that is not there means that all is well, each with the reason.
ABSENT_IS_WELL = {
    "START-003": "no state file: no job",
    "HOST-016": "no proxy is set",
    "DRIVER-004": "a variable that is not set hides nothing",
    "CUDA-002": "no toolkit anywhere is one of the two good states",
    "CUDA-003": "the variable is not set, or its folders hold no such library",
    "PY-002": "the variables are not set",
    "FLASH-001": "a CPU build bundles no such file",
    "CUDA-006": "the plan needs no nvcc",
    "TORCH-012": "no variable is set: torch's own defaults hold",
}
# Checks that judge by an exit code or a status alone.
BY_CODE = {
    "HOST-008": "lscpu --version ends with 0",
    "CUDA-005": "g++ --version ends with 0",
    "PY-004": "uv pip check ends with 0 and names no clash",
    "SERVE-001": "200 is the good answer, whatever the body",
    "WARM-002": "a log of which no line is an error",
}  # fmt: skip


class Silent:
    """A machine that answers every question of a kind alike."""

    machine = "live"
    has_target = True

    def __init__(self, answers: Mapping[str, Any], stack: str) -> None:
        self.answers = answers
        self.stack = stack

    def run(self, argv: list[str], timeout_s: float = 20.0) -> Ran:  # noqa: ARG002
        found: Ran = self.answers["run"]
        return found

    def read_text(self, path: str) -> str | None:  # noqa: ARG002
        found: str | None = self.answers["read"]
        return found

    def glob(self, pattern: str) -> tuple[str, ...]:
        # The device node decides which stack computes where; it follows the stack, so that garbage reaches the check.
        if pattern.startswith("/dev/nvidia"):
            return ("/dev/nvidia0",) if self.stack == GPU else ()
        found: tuple[str, ...] = self.answers["glob"]
        return found

    def env(self, name: str) -> str | None:  # noqa: ARG002
        found: str | None = self.answers["env"]
        return found

    def inside(self, *_: Any, **__: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.answers["inside"]
        return found

    def http(self, method: str, path: str, json: dict[str, Any] | None = None) -> Reply:  # noqa: ARG002
        found: Reply = self.answers["http"]
        return found


NOTHING: dict[str, Any] = {
    "run": Ran((), 0, "", ""),
    "read": None,
    "glob": (),
    "env": None,
    "inside": {},
    "http": Reply(200, ""),
}
NOBODY: dict[str, Any] = {
    "run": Ran((), 127, "", "No such file or directory", missing=True),
    "read": "",
    "glob": (),
    "env": None,
    "inside": {"error": "the child ended without an answer (exit code 1)", "rc": 1, "stderr": ""},
    "http": Reply(0, "ConnectError"),
}
FAILING: dict[str, Any] = {
    **NOTHING,
    "run": Ran((), 1, "", "Segmentation fault"),
    "read": "\n",
    "http": Reply(500, "Internal Server Error"),
}
HANGING: dict[str, Any] = {**NOBODY, "run": Ran((), -9, "", "", timed_out=True), "read": None}
NOISE: dict[str, Any] = {
    "run": Ran((), 0, "\x7fELF\x02\x01 \ufffd\ufffd of something else\n", ""),
    "read": "lorem ipsum\n\ufffd dolor = \n",
    "glob": (),
    "env": None,
    "inside": {"lorem": "ipsum"},
    "http": Reply(200, "<html>lorem ipsum</html>"),
}

# Bits of what the parsers look for, so that odd text gets past their first line of defence.
WORDS = (
    "0", "-1", "\N{SUPERSCRIPT TWO}", "9" * 5000, "1e999", "NaN", "null", "[]", "{}", '"x"', "[N/A]", ",", ", , , , , , ,", "\n", "\t", "\0", "\r\n",
    "Python", "Python 3", "glibc 2", "glibc 2.", "flags :", "flags\t: \n", "MemAvailable: kB", "MemAvailable: -1 kB", "max", "Max open files", "h\nd a b c d e",
    "release .", "CUDA Version: ", "Kernel Module  ", "__version__ = ", "__version__ = '1'", "__version__ = 'x y'", "__version__ = {[]: 1}", "cuda = 12.8", "version_info = 3",
    "version_info = 3.11.7", "Requires-Dist: transformers", "Requires-Dist: transformers >=", "KV cache size: , tokens", "Maximum concurrency for 2 tokens per request: .x",
    '{"model_type": "qwen3_5"}', '{"text_config": []}', '{"architectures": 7}', '{"stack": null}', '{"reason": 1}', '{"version": []}', "vllm:prompt_tokens_total NaN",
    "vllm:prompt_tokens_total 1e999", "# TYPE a histogram\na_bucket 1\n", "The package ", "0, , , , , , , ", "(EngineCore pid=1) ERROR ",
)  # fmt: skip
odd_text = st.one_of(
    st.text(max_size=80), st.lists(st.sampled_from(WORDS), max_size=6).map("".join), st.sampled_from(WORDS)
)
odd_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted(
    {key for case in CASES for answer in case.answers.values() if isinstance(answer, dict) for key in answer}
)
odd_facts = st.dictionaries(st.sampled_from(KEYS), odd_json, max_size=12)
odd_run = st.builds(
    Ran,
    st.just(()),
    st.sampled_from((0, 0, 0, 1, 2, 127, -9, -11)),
    odd_text,
    odd_text,
    missing=st.sampled_from((False, False, False, True)),
    timed_out=st.sampled_from((False, False, False, True)),
)
odd_answers = st.fixed_dictionaries(
    {
        "run": odd_run,
        "read": st.none() | odd_text,
        "glob": st.lists(odd_text.filter(bool).map(lambda text: "{site}/" + text), max_size=3).map(tuple),
        "env": st.none() | odd_text,
        "inside": odd_facts,
        "http": st.builds(Reply, st.sampled_from((0, 200, 401, 404, 500)), odd_text),
    }
)


def asked(one: Check, answers: Mapping[str, Any], stack: str) -> Finding:
    return judge(one, Silent(answers, stack), passed(one))


@pytest.mark.parametrize("stack", [CPU, GPU])
@pytest.mark.parametrize(
    "answers",
    [NOTHING, NOBODY, FAILING, HANGING, NOISE],
    ids=["nothing", "nobody", "failing", "hanging", "noise"],
)
@pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
def test_silence_is_not_green(one: Check, answers: Mapping[str, Any], stack: str) -> None:
    finding = asked(one, answers, stack)
    by_node = one.id == "DRIVER-001" and stack == GPU  # these machines have a device node
    if (
        one.id not in ABSENT_IS_WELL
        and not by_node
        and not (answers in (NOTHING, NOISE) and one.id in BY_CODE)
    ):
        assert finding.verdict is not OK, finding
    if finding.verdict is OK:
        assert finding.evidence


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(answers=odd_answers, stack=st.sampled_from((CPU, GPU)))
def test_odd_answers_never_raise(answers: Mapping[str, Any], stack: str) -> None:
    for one in ALL:
        finding = asked(one, answers, stack)
        assert finding.reason or finding.evidence, one.id


ODD_VALUES: tuple[Any, ...] = (None, "x", -1, [], {}, math.nan, [None])


def holes(answer: Any) -> Iterator[tuple[str, Any]]:
    """The same answer with one thing amiss, each in turn: a key gone, a value of another type, a text cut or empty."""
    if isinstance(answer, dict):
        for key in answer:
            yield f"without {key}", {name: value for name, value in answer.items() if name != key}
            for odd in ODD_VALUES:
                yield f"{key}={odd!r}", {**copy.deepcopy(answer), key: odd}
            if isinstance(answer[key], dict):
                for name, inner in holes(answer[key]):
                    yield f"{key}: {name}", {**answer, key: inner}
    elif isinstance(answer, str):
        yield from ((f"cut at {at}", answer[: len(answer) * at // 4]) for at in range(4))
        yield "without digits", "".join("x" if letter.isdigit() else letter for letter in answer)
    elif isinstance(answer, tuple):
        yield from (("no path", ()), ("half of them", answer[: len(answer) // 2]))
    elif isinstance(answer, Reply):
        yield from (
            ("500", Reply(500, answer.body)),
            ("cut", Reply(answer.status, answer.body[: len(answer.body) // 2])),
        )


INNOCENT = [case for case in CASES if case.verdict is OK and not case.manifest]


@pytest.mark.parametrize("case", INNOCENT, ids=str)
def test_one_thing_amiss_never_raises(case: Case) -> None:
    one = BY_ID[case.id]
    for ask, answer in case.answers.items():
        for what, odd in holes(answer):
            finding = judge(
                one, Host({**case.answers, ask: odd}, case.stack, has_target=case.built), passed(one)
            )
            assert finding.reason or finding.evidence, (ask, what)


# Answers a real machine may give, although no table has them: they must be understood, not survived.
PLAUSIBLE: list[tuple[str, dict[str, Any], str, str]] = [
    ("TORCH-001", {"read {site}/torch/version.py": "__version__ = '2.10.0a0+b4e4ee81d3.nv25.12'\n"}, GPU, "a build of NVIDIA's containers"),
    ("VLLM-001", {"glob {site}/*.dist-info": ("{site}/vllm-0.19.1.dev0+g1234567.d20261130.dist-info",)}, GPU, "an editable build"),
    ("PY-003", {"read {prefix}/pyvenv.cfg": "version = 3\n", "glob {site}/*.dist-info": ()}, CPU, "a version of one number"),
    ("MODEL-004", {"read {model}/config.json": '{"model_type": "qwen3_5", "text_config": {"layer_types": "x", "rope_parameters": []}}'}, CPU, "a config of other types"),
    ("MODEL-004", {"read {model}/config.json": '{"model_type": "qwen3_5", "text_config": {"rope_parameters": {"full_attention": {"rope_theta": 1}}}}'}, CPU, "rope per layer type"),
    ("MODEL-003", {"read {model}/config.json": '{"architectures": "Qwen3ForCausalLM"}', "run grep": ""}, CPU, "architectures as one word"),
    ("MODEL-006", {cases_model.TOKENIZER: cases_model.TOKENS, "read {model}/generation_config.json": "[]"}, CPU, "a list for generation_config"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check_id", "answers", "stack", "what"), PLAUSIBLE, ids=[f"{each[0]} {each[3]}" for each in PLAUSIBLE]
)
def test_what_may_well_happen_breaks_nothing(
    check_id: str, answers: dict[str, Any], stack: str, what: str
) -> None:
    one = BY_ID[check_id]
    finding = judge(one, Host({"glob /dev/nvidia[0-9]*": (), **answers}, stack), passed(one))
    assert BROKE not in finding.reason, (what, finding.reason)
    assert finding.verdict is not OK
