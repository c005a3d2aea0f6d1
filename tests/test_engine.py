"""Order, blocking, crashes, waivers and exit codes, on made-up checks."""

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook import engine, pins
from runbook.checks import ALL, BY_ID
from runbook.errors import BadParameter, NotRecorded
from runbook.model import (
    Answer,
    Check,
    Cost,
    Evidence,
    Finding,
    Fix,
    Layer,
    Source,
    Verdict,
    check,
    fail,
    ok,
    skip,
    unknown,
    warn,
)
from runbook.params import PAGES, page_spec
from runbook.probes.replay import ReplayProbe, load
from runbook.walk import SECOND_STACK_PAGES

HOST = ReplayProbe(load("cpu-2core"))
WITH_TARGET = ReplayProbe(load("cpu-2core"), "vllm-0.32.0-cpu")
FIX = Fix("do something")
ANSWERS: dict[Verdict, Answer] = {
    Verdict.OK: ok(),
    Verdict.WARN: warn(reason="costs"),
    Verdict.FAIL: fail(fix=FIX),
    Verdict.SKIP: skip("does not arise"),
    Verdict.UNKNOWN: unknown("not read"),
}


def made(
    id_: str, answer: Answer | Callable[[Any], Answer], requires: tuple[str, ...] = (), **more: Any
) -> Check:
    judge = answer if callable(answer) else lambda _: answer
    return check(id_, layer=more.pop("layer", Layer.HOST), title="t", why="w", source=Source("s", "u", "2026-11-30"), requires=requires, **more)(judge)  # fmt: skip


def verdicts(findings: list[Finding]) -> dict[str, Verdict]:
    return {one.id: one.verdict for one in findings}


def breaks(_: Any) -> Answer:
    raise ValueError("odd text")


def gap(_: Any) -> Answer:
    raise NotRecorded("the recording x has no answer to: run y")


# What is chosen


def test_ids_layers_and_cost() -> None:
    def ids(names: list[str], limit: Cost) -> list[str]:
        return [one.id for one in engine.select(ALL, names, limit)]

    assert ids([], Cost.SLOW) == [one.id for one in ALL]
    assert ids([], Cost.STATIC) == [one.id for one in ALL if one.cost is Cost.STATIC]
    assert set(ids(["TORCH"], Cost.STATIC)) == {
        one.id for one in ALL if one.layer is Layer.TORCH and one.cost is Cost.STATIC
    }
    assert ids(["TORCH", "HOST-001"], Cost.STATIC)[0] == "HOST-001"
    # Named by its id, a check is asked whatever it costs.
    assert ids(["MODEL-007"], Cost.STATIC) == ["MODEL-007"]
    assert ids(["model-007", "MODEL-007"], Cost.STATIC) == ["MODEL-007"]


@pytest.mark.parametrize("names", [["X"], ["HOST-1"], ["HOST-001", "HOST-0011"], [""], ["HOST-"]])
def test_a_name_there_is_none_of(names: list[str]) -> None:
    with pytest.raises(BadParameter, match="no check or layer"):
        engine.select(ALL, names, Cost.SLOW)


@given(st.randoms(use_true_random=False), st.lists(st.sampled_from(sorted(BY_ID)), min_size=1, max_size=6))
def test_what_a_check_requires_comes_before_it_and_once(chance: random.Random, names: list[str]) -> None:
    every = list(ALL)
    chance.shuffle(every)
    ordered = engine.with_required([BY_ID[name] for name in names], every)
    ids = [one.id for one in ordered]
    assert len(ids) == len(set(ids))
    assert set(names) <= set(ids)
    for one in ordered:
        assert all(ids.index(need) < ids.index(one.id) for need in one.requires)
    # No check that neither was chosen nor is required by one that was.
    needed = {need for one in ordered for need in one.requires}
    assert set(ids) == set(names) | needed


def test_a_circle_and_a_hole_are_bugs_of_ours() -> None:
    a, b = made("A-001", ok(), ("B-001",)), made("B-001", ok(), ("A-001",))
    with pytest.raises(ValueError, match="in a circle: A-001 -> B-001 -> A-001"):
        engine.with_required([a], [a, b])
    with pytest.raises(ValueError, match="A-001 requires B-001, which does not exist"):
        engine.with_required([a], [a])


def test_no_check_of_ours_requires_a_dearer_one() -> None:
    for one in ALL:
        for need in one.requires:
            assert BY_ID[need].cost.within(one.cost), f"{one.id} requires {need}"
            assert ALL.index(BY_ID[need]) < ALL.index(one), f"{one.id} stands before {need}"


def test_ids_of_ours() -> None:
    assert len(BY_ID) == len(ALL)
    for one in ALL:
        assert one.id.rpartition("-")[0] == one.layer.value
        assert one.title[0].isupper() or one.title.startswith(
            (
                "nvidia-smi",
                "torch",
                "vLLM",
                "conda",
                "cuDNN",
                "transformers",
                "lscpu",
                "nvcc",
                "config.json",
                "/",
            )
        )
        assert not one.title.endswith(".")
        assert one.why.endswith(".")
        assert "\n" not in one.title + one.why


# What follows from what came before


@pytest.mark.parametrize("before", Verdict)
def test_only_ok_and_warn_let_the_next_one_be_asked(before: Verdict) -> None:
    asked: list[str] = []

    def ask(_: Any) -> Answer:
        asked.append("b")
        return ok()

    a, b = made("A-001", ANSWERS[before]), made("B-001", ask, ("A-001",))
    found = {one.id: one for one in engine.run([b], [a, b], HOST)}
    if before in (Verdict.OK, Verdict.WARN):
        assert (found["B-001"].verdict, asked) == (Verdict.OK, ["b"])
    else:
        assert (found["B-001"].verdict, asked) == (Verdict.SKIP, [])
        assert found["B-001"].reason.startswith(f"A-001 is {before.value}")


def test_the_first_cause_is_named_however_far_up() -> None:
    chain = [
        made("A-001", unknown("no file")),
        *(made(f"{each}-001", ok(), (f"{before}-001",)) for before, each in zip("ABC", "BCD", strict=True)),
    ]
    found = engine.run(chain, chain, HOST)
    assert [one.reason for one in found] == ["no file", *["A-001 is unknown: no file"] * 3]


def test_the_cause_of_a_failure_stands_at_the_failure() -> None:
    chain = [made("A-001", fail(fix=FIX, reason="too old")), made("B-001", ok(), ("A-001",))]
    assert engine.run(chain, chain, HOST)[1].reason == "A-001 is fail"


def test_without_a_target_nothing_is_asked_of_it() -> None:
    (found,) = engine.run(
        [made("A-001", breaks, needs_target=True)], [made("A-001", breaks, needs_target=True)], HOST
    )
    assert (found.verdict, found.stack) == (Verdict.SKIP, "")
    assert "there is no target environment" in found.reason


def test_a_finding_names_the_stack_only_where_it_is_about_one() -> None:
    both = [made("A-001", ok(), needs_target=True), made("B-001", ok())]
    assert [one.stack for one in engine.run(both, both, WITH_TARGET)] == ["vllm-0.32.0-cpu", ""]


# What breaks


def test_a_check_that_breaks_is_unknown_and_the_others_go_on() -> None:
    three = [made("A-001", breaks), made("B-001", ok()), made("C-001", ok(), ("A-001",))]
    found = engine.run(three, three, HOST)
    assert verdicts(found) == {"A-001": Verdict.UNKNOWN, "B-001": Verdict.OK, "C-001": Verdict.SKIP}
    assert (
        found[0].reason
        == "the check itself broke (ValueError: odd text); this says nothing about the machine"
    )


def test_a_gap_in_a_recording_is_no_break() -> None:
    (found,) = engine.run([made("A-001", gap)], [made("A-001", gap)], HOST)
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, "the recording x has no answer to: run y")


def test_an_interruption_is_not_swallowed() -> None:
    def interrupted(_: Any) -> Answer:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.run([made("A-001", interrupted)], [made("A-001", interrupted)], HOST)


# Waivers


@pytest.mark.parametrize("verdict", Verdict)
def test_a_waiver_demotes_a_failure_and_nothing_else(verdict: Verdict) -> None:
    one = made("A-001", ANSWERS[verdict])
    (found,) = engine.run([one], [one], HOST, waive=["A-001"])
    if verdict is Verdict.FAIL:
        assert (found.verdict, found.waived, found.fix, found.reason) == (Verdict.WARN, True, FIX, "waived")
    else:
        assert (found.verdict, found.waived) == (verdict, False)


def test_a_waiver_keeps_the_evidence_and_lets_the_next_one_be_asked() -> None:
    seen = Evidence("driver", "470", "x")
    two = [made("A-001", fail(seen, fix=FIX, reason="too old")), made("B-001", ok(), ("A-001",))]
    found = engine.run(two, two, HOST, waive={"A-001"})
    assert (found[0].evidence, found[0].reason) == ((seen,), "too old")
    assert found[1].verdict is Verdict.OK


# Exit codes


def finding(verdict: Verdict, id_: str = "A-001", stack: str = "") -> Finding:
    one = made(id_, ANSWERS[verdict])
    (found,) = engine.run([one], [one], HOST)
    return dataclasses.replace(found, stack=stack)


@given(st.lists(st.sampled_from(list(Verdict)), max_size=6))
def test_exit_code(seen: list[Verdict]) -> None:
    code = engine.exit_code([finding(verdict) for verdict in seen])
    if Verdict.FAIL in seen:
        assert code == 1
    elif Verdict.UNKNOWN in seen or not {Verdict.OK, Verdict.WARN} & set(seen):
        assert code == 3
    else:
        assert code == 0


def test_a_missing_expected_finding_is_3() -> None:
    have = [finding(Verdict.OK, "A-001", "s")]
    assert engine.exit_code(have, [("A-001", "s")]) == 0
    assert engine.exit_code(have, [("A-001", "s"), ("B-001", "")]) == 3
    assert engine.exit_code(have, [("A-001", "")]) == 3
    assert engine.exit_code([*have, finding(Verdict.FAIL, "C-001")], [("B-001", "")]) == 1


def test_findings_are_told_as_they_are_made() -> None:
    told: list[str] = []
    two = [made("A-001", ok()), made("B-001", ok())]
    found = engine.run(two, two, HOST, seen=lambda one: told.append(one.id))
    assert told == ["A-001", "B-001"]
    assert all(0 <= one.duration_s < 5 for one in found)


def test_a_replay_gives_the_same_findings_each_time() -> None:
    def once() -> list[Finding]:
        found = engine.run(
            engine.select(ALL, [], Cost.SLOW), ALL, ReplayProbe(load("cpu-2core"), "vllm-0.32.0-cpu")
        )
        return [dataclasses.replace(one, duration_s=0.0) for one in found]

    assert once() == once()


@pytest.mark.parametrize("place", [0, 1])
def test_the_committed_machine_is_well(place: int) -> None:
    """Recorded in a walk that ended with 0: the first stack through all pages, the second through those about its target."""
    stack = pins.REHEARSAL[place]
    names = [page.name for page in PAGES] if place == 0 else SECOND_STACK_PAGES
    asked = [one for one in ALL if one.layer in {layer for name in names for layer in page_spec(name).layers}]
    found = engine.run(asked, ALL, ReplayProbe(load("cpu-2core"), stack))
    about = {one.id for one in asked}
    assert {
        one.id: one.reason
        for one in found
        if one.id in about and one.verdict in (Verdict.FAIL, Verdict.UNKNOWN)
    } == {}
    assert sum(one.verdict is Verdict.OK for one in found) > 30
