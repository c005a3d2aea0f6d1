"""The ledger as it ships: whole, in its own words, with checks that exist, and the page made of it; and what a bad file says."""

import re
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from turning import opposites

from runbook.claims import ledger, render, rows
from runbook.claims.ledger import Claim, Layer, Verdict
from runbook.claims.probes import KINDS
from runbook.claims.probes.base import Outcome
from runbook.claims.probes.machine import Answer
from runbook.claims.target import environment
from runbook.errors import BadParameter
from runbook.model import Layer as CheckLayer
from runbook.probes import replay
from runbook.probes.live import LiveProbe
from runbook.report import EXPLAIN
from runbook.workspace import Workspace

PAGE = Path(__file__).parents[2] / "docs" / "claims.md"
REGISTRIES = ("pypi" + ".org", "pythonhosted" + ".org", "debian" + ".org", "npmjs" + ".com", "npmjs" + ".org")
OURS = re.compile(r"(?<![\w.}/])/(?:work|tmp|root|home)/")
ENTRY = """
- id: C001
  claim: Something that is said somewhere.
  verdict: refuted
  truth: Something else is so.
  evidence: It was looked at here.
  sources: ["https://example.com/page"]
  date: 2026-11-30
  checks: []
  probes:
    - {kind: model, name: Qwen/Qwen3.5-7B, exists: false}
"""


@pytest.mark.parametrize("one", ledger.claims(), ids=lambda one: one.id)
def test_an_entry_is_whole_and_points_to_what_exists(one: Claim) -> None:
    for check in one.checks:
        assert (EXPLAIN / f"{check}.md").exists()
        assert check.partition("-")[0] in {each.value for each in CheckLayer}
    for source in one.sources:
        assert (
            re.fullmatch(r"pkg:pypi/[a-z0-9-]+(@[\w.]+)?(#\S+)?", source)
            or urlsplit(source).scheme == "https"
        )
    written = render.json_text([one])
    assert not [host for host in REGISTRIES if host in written]
    assert not OURS.search(written)


def test_every_claim_of_the_three_articles_is_there() -> None:
    assert [one.id for one in ledger.claims()] == [f"C{number:03}" for number in range(1, 230)]
    assert Counter(one.article for one in ledger.claims()) == {"000": 98, "003": 73, "004": 58}
    assert {one.verdict for one in ledger.claims()} == set(Verdict)
    assert {one.layer for one in ledger.claims()} == set(Layer)


def test_most_claims_can_be_asked_again() -> None:
    probed = [one for one in ledger.claims() if one.probes]
    assert len(probed) >= 120
    # And of most a target or a machine is asked, not only what this runbook wrote down itself.
    assert (
        sum(any(each.needs_target or isinstance(each, Answer) for each in one.probes) for one in probed)
        >= 120
    )
    assert {type(each) for one in probed for each in one.probes} == set(KINDS)


def test_no_verdict_rests_on_a_recording_that_was_edited() -> None:
    machines = {
        each.machine for one in ledger.claims() for each in one.probes if isinstance(each, Answer)
    } - {""}
    assert machines
    assert [name for name in machines if replay.load(name).edited_from] == []


def test_the_page_is_made_of_the_ledger() -> None:
    assert PAGE.read_text(encoding="utf-8") == render.page(ledger.claims())


def test_what_needs_no_target_stands_and_its_opposite_does_not() -> None:
    ours = environment(LiveProbe(Workspace(Path("/nonexistent"))), "")
    turned = 0
    for one in ledger.claims():
        for probe in one.probes:
            if probe.needs_target or (isinstance(probe, Answer) and not probe.machine):
                continue
            assert probe.judge(ours).outcome is Outcome.STANDS, (one.id, probe)
            for opposite in opposites(probe):
                assert opposite.judge(ours).outcome is Outcome.DRIFTED, (one.id, opposite)
                turned += 1
    assert turned > 100


def folder(tmp_path: Path, text: str, name: str = "000/model.yaml") -> Path:
    path = tmp_path / name
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")
    return tmp_path


def test_a_file_is_read(tmp_path: Path) -> None:
    (one,) = ledger.read(folder(tmp_path, ENTRY))
    assert (one.id, one.article, one.layer, one.verdict) == ("C001", "000", Layer.MODEL, Verdict.REFUTED)


BAD = {
    "no yaml": ("- id: [", "did not find expected node content"),
    "no list": ("id: C001", "no list of entries"),
    "a misspelt key": (ENTRY.replace("truth:", "thruth:"), "thruth"),
    "a verdict that is none": (ENTRY.replace("refuted", "wrong"), "verdict"),
    "an id that is none": (ENTRY.replace("C001", "X1"), "id: String should match"),
    "no evidence": (ENTRY.replace("  evidence: It was looked at here.\n", ""), "evidence: Field required"),
    "the layer again": (ENTRY.replace("- id: C001", "- id: C001\n  layer: model"), "layer is given"),
    "an id twice": (ENTRY + ENTRY, "given twice"),
    "a kind that is none": (ENTRY.replace("kind: model", "kind: shell"), "does not match any of the expected tags"),
    "a range that is none": (ENTRY + "  elsewhere: {soon: It differs.}\n", "no range of versions"),
    "a probe's range that is none": (ENTRY.replace("exists: false", "exists: false, vllm: new"), "no range of versions"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "says"), BAD.values(), ids=BAD)
def test_a_bad_file_is_one_clear_error(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadParameter) as error:
        ledger.read(folder(tmp_path, text))
    assert says in error.value.seen
    assert error.value.seen.startswith("claims 000/model.yaml")
    assert error.value.exit_code == 2


def test_a_layer_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(BadParameter, match="layer"):
        ledger.read(folder(tmp_path, ENTRY, "000/models.yaml"))


CANNOT_FAIL = {
    "text": "{kind: text, path: '{site}/a.py'}",
    "text outside": "{kind: text, path: '{site}/../a.py', has: [a]}",
    "text without a place": "{kind: text, path: /etc/passwd, has: [a]}",
    "text in what": "{kind: text, path: '{site}/a.py', has: [a], within: f}",
    "files": "{kind: files, path: '{site}/a', there: false, names: [a]}",
    "requires": "{kind: requires, package: vllm, of: torch}",
    "requires both": "{kind: requires, package: vllm, of: torch, absent: true, allows: ['2']}",
    "requires a version": "{kind: requires, package: vllm, of: torch, allows: [new]}",
    "requirements": "{kind: requirements, lines: [a], says: []}",
    "lock": "{kind: lock, stack: vllm-0.19.1-cpu, package: torch}",
    "elf": "{kind: elf, file: '{site}/a.so'}",
    "flags": "{kind: flags, words: [], outcome: warned}",
    "flags refused": "{kind: flags, words: [], outcome: refused, sets: {a: 1}}",
    "value": "{kind: value, of: torch.version.cuda}",
    "value expression": "{kind: value, of: 'print(1)', is: 1}",
    "fact": "{kind: fact, name: engine, field: block_size}",
    "fact name": "{kind: fact, name: shell, field: a, is: 1}",
    "fact model": "{kind: fact, name: rope, given: {model: gpt}, field: base, is: 1}",
    "model": "{kind: model, name: a/b, field: size}",
    "memory": "{kind: memory, model: Qwen/Qwen3.5-4B, field: block_size}",
    "table": "{kind: table, table: cards, row: {id: a}}",
    "table name": "{kind: table, table: ../stacks, row: {id: a}, absent: true}",
    "runs": "{kind: runs, code: [sm_80], card: '8.0'}",
    "answer": "{kind: answer, ask: http GET /health}",
    "answer posts": "{kind: answer, ask: http POST /shutdown, is: HTTP 200}",
    "answer runs": "{kind: answer, ask: run reboot, is: ''}",
}


@pytest.mark.parametrize("probe", CANNOT_FAIL.values(), ids=CANNOT_FAIL)
def test_a_probe_that_cannot_fail_or_reaches_out_is_refused(probe: str, tmp_path: Path) -> None:
    text = ENTRY.replace("{kind: model, name: Qwen/Qwen3.5-7B, exists: false}", probe)
    with pytest.raises(BadParameter, match=r"probes\.0"):
        ledger.read(folder(tmp_path, text))


def test_claims_are_chosen_by_id_layer_and_verdict() -> None:
    assert [one.id for one in ledger.chosen(("c093", "C002"))] == ["C002", "C093"]
    assert {one.layer for one in ledger.chosen(layer=Layer.CUDA)} == {Layer.CUDA}
    assert {one.verdict for one in ledger.chosen(verdict=Verdict.PARTLY)} == {Verdict.PARTLY}
    with pytest.raises(BadParameter, match="C999"):
        ledger.chosen(("C999",))


def test_what_a_check_explains_is_found_without_reading_the_probes() -> None:
    found = rows.explained_by("SERVE-001")
    assert found == [
        (one.id, one.verdict.value, one.claim) for one in ledger.claims() if "SERVE-001" in one.checks
    ]
    assert "C093" in [name for name, _, _ in found]
