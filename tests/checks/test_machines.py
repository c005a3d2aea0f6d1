"""The edited recordings that ship: what each edit turns, and nothing else."""

import pytest

from runbook import engine
from runbook.checks import ALL
from runbook.model import Verdict
from runbook.probes.replay import ReplayProbe, load, names

FAIL, WARN = Verdict.FAIL, Verdict.WARN
# machine: (stack, what is judged otherwise than on its parent and did not become a skip)
EDITED: dict[str, tuple[str, dict[str, Verdict]]] = {
    "cpu-memory-taken": ("vllm-0.32.0-cpu", {"HOST-004": FAIL}),
    "cpu-no-lscpu": ("vllm-0.32.0-cpu", {"HOST-008": FAIL, "WARM-001": FAIL, "SERVE-001": FAIL, "SERVE-009": WARN}),
    "cpu-numpy-swapped": ("vllm-0.32.0-cpu", {"PY-003": FAIL}),
    "h200-busy": ("vllm-0.19.1-cu128", {"DRIVER-005": WARN}),
}  # fmt: skip


def test_every_edited_machine_is_here() -> None:
    assert {name for name in names() if load(name).edited_from} == set(EDITED)


def verdicts(name: str, stack: str) -> dict[str, Verdict]:
    return {one.id: one.verdict for one in engine.run(ALL, ALL, ReplayProbe(load(name), stack))}


@pytest.mark.parametrize("name", EDITED)
def test_an_edit_turns_what_it_should(name: str) -> None:
    stack, expected = EDITED[name]
    before, after = verdicts(load(name).edited_from, stack), verdicts(name, stack)
    turned = {each: after[each] for each in after if after[each] is not before[each]}
    assert {each: verdict for each, verdict in turned.items() if verdict is not Verdict.SKIP} == expected


@pytest.mark.parametrize("name", [name for name in names() if not load(name).edited_from])
def test_no_check_breaks_on_a_real_machine(name: str) -> None:
    machine = load(name)
    for stack in machine.stacks:
        found = engine.run(ALL, ALL, ReplayProbe(machine, stack))
        assert [one.reason for one in found if "the check itself broke" in one.reason] == []
