"""The recorded machines: no check breaks on a real one, an edited copy turns what it should and nothing else."""

import filecmp
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
from editing import MACHINES, Edited, tables, write

from runbook import engine
from runbook.checks import ALL, BY_ID
from runbook.model import Layer, Verdict
from runbook.probes.replay import ReplayProbe, load, names

FAIL, WARN, UNKNOWN = Verdict.FAIL, Verdict.WARN, Verdict.UNKNOWN
# Edited by hand, since a changed answer is a real reading of another machine: (stack, what is judged otherwise).
BY_HAND: dict[str, tuple[str, dict[str, Verdict]]] = {
    "cpu-no-lscpu": ("vllm-0.32.0-cpu", {"HOST-008": FAIL, "WARM-001": FAIL, "SERVE-001": FAIL, "SERVE-009": WARN, "SERVE-014": UNKNOWN, "SERVE-015": UNKNOWN, "TRIAGE-001": FAIL}),
}  # fmt: skip
TABLES = tables()
EDITED = BY_HAND | {one.name: (one.stack, dict(one.turns)) for one in TABLES}
# Layers whose every check is shown ok and failing by a recorded machine (the others need a server or a model).
SHOWN = (Layer.HOST, Layer.DRIVER, Layer.CUDA, Layer.PY, Layer.TORCH, Layer.FLASH, Layer.ARCH, Layer.ABI, Layer.VLLM)  # fmt: skip
# Checks of those layers that no recording shows so, each with the reason.
NEVER_OK: dict[str, str] = {}
NEVER_FAILING: dict[str, str] = {
    "CUDA-006": "every stack plans Triton's kernels; what its manifest says is no reading (cases_cuda has the row)"
}


def test_every_edited_machine_is_here() -> None:
    assert {name for name in names() if load(name).edited_from} == set(EDITED)


@cache
def verdicts(name: str, stack: str) -> dict[str, Verdict]:
    return {one.id: one.verdict for one in engine.run(ALL, ALL, ReplayProbe(load(name), stack))}


@pytest.mark.parametrize("name", EDITED)
def test_an_edit_turns_what_it_should(name: str) -> None:
    stack, expected = EDITED[name]
    before, after = verdicts(load(name).edited_from, stack), verdicts(name, stack)
    turned = {each: after[each] for each in after if after[each] is not before[each]}
    assert {each: verdict for each, verdict in turned.items() if verdict is not Verdict.SKIP} == expected
    assert expected, "an edit that turns nothing shows nothing"


@pytest.mark.parametrize("one", TABLES, ids=lambda one: one.name)
def test_the_folder_is_what_its_table_writes(one: Edited, tmp_path: Path) -> None:
    written, kept = write(one, tmp_path), MACHINES / one.name
    files = {path.relative_to(written) for path in written.rglob("*") if path.is_file()}
    assert files == {path.relative_to(kept) for path in kept.rglob("*") if path.is_file()}
    _, differ, odd = filecmp.cmpfiles(written, kept, [str(path) for path in files], shallow=False)
    assert differ + odd == [], "python tests/machines/write.py writes them again"


@pytest.mark.parametrize("name", [name for name in names() if not load(name).edited_from])
def test_no_check_breaks_on_a_real_machine(name: str) -> None:
    machine = load(name)
    for stack in machine.stacks:
        found = engine.run(ALL, ALL, ReplayProbe(machine, stack))
        assert [one.reason for one in found if "the check itself broke" in one.reason] == []


def test_each_check_has_a_recorded_machine_where_it_is_ok_and_one_where_it_fails() -> None:
    seen: dict[str, set[Verdict]] = defaultdict(set)
    for name in names():
        for stack in load(name).stacks or (EDITED[name][0],):
            for ident, verdict in verdicts(name, stack).items():
                seen[ident].add(verdict)
    mine = [one.id for one in ALL if one.layer in SHOWN]
    assert {each for each in mine if Verdict.OK not in seen[each]} == set(NEVER_OK)
    assert {each for each in mine if not seen[each] & {WARN, FAIL}} == set(NEVER_FAILING)
    assert set(NEVER_OK) | set(NEVER_FAILING) <= set(BY_ID)
