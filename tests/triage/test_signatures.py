"""The signatures as data: the vocabulary is kept, every rule can hold, none is a copy of one log, none hides another."""

import random
import re
from pathlib import Path

import pytest
import re2
import rstr
import yaml

from runbook import triage
from runbook.checks import BY_ID
from runbook.errors import BadParameter
from runbook.triage import judge, signatures
from runbook.triage.signatures import Rule, Signature, Sure

CORPUS = Path(__file__).parents[1] / "data" / "corpus"
KNOWN = signatures.load()
NORMAL = signatures.load_normal()
RULES = [(one, number) for one in KNOWN for number in range(len(one.rules))]
LONGEST_LITERAL = 90
# Keys of ours, for causes that the corpus has no log of.
OWN = frozenset(
    {
        "activations-dont-fit",
        "cpu-attention-needs-bfloat16",
        "cpu-build-cannot-load-model",
        "cpu-conv-one-token-prompt",
        "cuda-before-fork",
        "gpu-program-fault",
        "host-memory-exhausted",
        "lscpu-missing",
        "server-process-killed",
        "too-many-open-files",
        "vllm-not-in-this-python",
    }
)


def name(row: tuple[Signature, int]) -> str:
    return f"{row[0].key}-{row[1]}"


def causes() -> dict[str, list[str]]:
    rows = yaml.load((CORPUS / "causes.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return {row["key"]: row["layers"] for row in rows}


def test_every_cause_of_the_vocabulary_has_a_signature_of_its_layer() -> None:
    vocabulary = causes()
    assert {one.key for one in KNOWN} == set(vocabulary) | OWN
    wrong = {
        one.key: one.layer for one in KNOWN if one.key in vocabulary and one.layer not in vocabulary[one.key]
    }
    assert wrong == {}


def test_checks_exist_and_sources_are_addresses() -> None:
    assert {check for one in KNOWN for check in one.checks} <= set(BY_ID)
    assert {one.key for one in KNOWN if not one.sources} == set()
    assert [each for one in KNOWN for each in one.sources if not each.startswith("https://")] == []


def test_what_changes_something_can_be_undone() -> None:
    assert {one.key for one in KNOWN if one.fix.risk.value != "none" and not one.fix.undo} == set()


def patterns() -> list[str]:
    every = [pattern for one in KNOWN for rule in one.rules for pattern in (*rule.says, *rule.never)]
    return sorted({*every, *(one.says for one in NORMAL)})


@pytest.mark.parametrize("pattern", patterns())
def test_a_pattern_has_a_literal_and_states_no_instance(pattern: str) -> None:
    found = re2.Filter()
    found.Add(pattern.encode(), re2.Options())
    found.Compile()
    assert not found.Match(b"", potential=True), "no literal: it would be tried on every block"
    literals = re.split(r"\\?[.*+?|()\[\]{}^$]|\\[dwsbDWSB]", pattern)
    assert max(map(len, literals)) <= LONGEST_LITERAL, "a whole copied line"
    assert not re.search(
        r"0x[0-9a-f]{6,}|pid=\d|\b\d{1,3}(?:\\?\.\d{1,3}){3}\b|/home/\w|/root/|\d{6,}", pattern
    )


def test_no_cause_explains_one_that_explains_it() -> None:
    over = {one.key: set(one.over) for one in KNOWN}
    assert {low for lows in over.values() for low in lows} <= set(over)
    for key, low in over.items():
        seen: set[str] = set()
        todo = set(low)
        while todo:
            each = todo.pop()
            assert each != key, f"{key} is over itself by way of {low}"
            todo |= over[each] - seen
            seen.add(each)


@pytest.mark.parametrize("row", RULES, ids=name)
def test_a_rule_can_hold_and_no_other_cause_comes_before_it(row: tuple[Signature, int]) -> None:
    """A log of only what the rule asks for: it holds, and its cause is named first, alone; a hint is among those named."""
    one, number = row
    log = "\n".join(example(one.rules[number])) + "\n"
    found = triage.read_text(log)
    named = [(cause.key, cause.sure.value, cause.follows) for cause in found.causes[:3]]
    assert one.key in [key for key, _, _ in named], f"{log!r}: {named}"
    if one.rules[number].sure is Sure.POSSIBLE:
        return
    assert found.causes[0].key == one.key, f"{log!r}: {named}"
    assert found.verdict == judge.CAUSE, f"{log!r}: {found.reason}"


def example(rule: Rule) -> list[str]:
    """A line for each pattern of a rule, made from the pattern; always the same."""
    make = rstr.Rstr(random.Random(rule.says[0]))  # noqa: S311 - no secret
    before = ["INFO:     Application startup complete."] * rule.up
    return [
        *before,
        *[line(make, rule.says[0])] * rule.times,
        *(line(make, pattern) for pattern in rule.says[1:]),
    ]


def line(make: rstr.Rstr, pattern: str) -> str:
    """What is made knows no word boundaries and no line's end, so it is made until it fits."""
    for _ in range(400):
        made = re.sub(r"\s", " ", make.xeger(pattern))
        if re2.search(f"(?m){pattern}", made):
            return made
    raise AssertionError(f"nothing was made that {pattern!r} finds")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("a: 1", "a list"),
        ("- key: [", "YAML"),
        ("- {key: a, layer: memory, why: w, rules: [], fix: {text: f}}", "at least"),
        (
            "- {key: a, layer: moon, why: w, rules: [{says: [abcd], sure: stated}], fix: {text: f}}",
            "one of driver",
        ),
        (
            "- {key: a, layer: memory, why: w, rules: [{says: ['(abcd'], sure: stated}], fix: {text: f}}",
            "RE2",
        ),
        (
            "- {key: a, layer: memory, why: w, rules: [{says: ['(?=abcd)'], sure: stated}], fix: {text: f}}",
            "RE2",
        ),
        ("- {key: a, layer: memory, why: w, rules: [{says: [abcd], sure: maybe}], fix: {text: f}}", "stated"),
        (
            "- {key: a, layer: memory, why: w, rules: [{says: [abcd], sure: stated, versions: x}], fix: {text: f}}",
            "PEP 440",
        ),
        (
            "- {key: a, layer: memory, why: w, rules: [{says: [abcd], sure: stated, when: x}], fix: {text: f}}",
            "only",
        ),
        (
            "- {key: a, layer: memory, why: w, rules: [{says: [abcd], sure: stated}], fix: {text: f, risk: huge}}",
            "reboot",
        ),
        (
            "- &a {key: a, layer: memory, why: w, rules: [{says: [abcd], sure: stated}], fix: {text: f}}\n- *a",
            "more than one",
        ),
    ],
)
def test_bad_data_is_one_clear_error(tmp_path: Path, data: str, said: str) -> None:
    (tmp_path / "x.yaml").write_text(data, encoding="utf-8")
    with pytest.raises(BadParameter) as raised:
        signatures.load(tmp_path)
    assert said in str(raised.value)
