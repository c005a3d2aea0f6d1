"""Which rule holds, which cause explains which, and when there is no verdict. With signatures made up for it."""

import dataclasses
import io

import pytest

from runbook import triaged
from runbook.model import Fix, Verdict
from runbook.triage import judge, scan
from runbook.triage.judge import Reading, Triage
from runbook.triage.signatures import Normal, Rule, Signature, Sure

BANNER = "INFO 11-30 05:00:00 [api_server.py:1] vLLM API server version {}\n"
UP = "INFO:     Application startup complete.\n"
SERVED = '(APIServer pid=1) INFO:     127.0.0.1:4 - "POST /v1/completions HTTP/1.1" 200 OK\n'


def signature(key: str, *rules: Rule, over: tuple[str, ...] = ()) -> Signature:
    return Signature(key, "memory", "Because.", rules, Fix("Mend it"), over, ("MODEL-010",))


def says(*patterns: str, sure: Sure = Sure.STATED, **more: object) -> Rule:
    return Rule(patterns, sure, **more)  # type: ignore[arg-type]


KV = signature("kv", says("KV cache is too small"), over=("oom",))
OOM = signature("oom", says("CUDA out of memory", sure=Sure.POSSIBLE))
GRAPH = signature(
    "graph", says("CUDA out of memory", "capture_model", sure=Sure.LIKELY, within=5), over=("oom",)
)
OLD = signature("old", says("swap space gone", versions="<0.11"))
NOT = signature("not", says("port taken", never=("it is free again",)))
PICKED = signature("picked", says("hit rate: 0.0%", sure=Sure.LIKELY, excerpt=True))
OFTEN = signature("often", says("no block found", up=True, times=2))
OTHER = signature("other", says("shard is cut"))
ALL = (KV, OOM, GRAPH, OLD, NOT, PICKED, OFTEN, OTHER)
NORMAL = (Normal("See root cause above", "a shadow", shadow=True), Normal("ulimit of", "harmless"))


def judged(log: str, *signatures: Signature) -> Triage:
    chosen = signatures or ALL
    seen = scan.Scanner(judge.patterns(chosen, NORMAL)).read([("", _stream(log))])
    return judge.judge(seen, chosen, NORMAL)


def _stream(log: str) -> io.BytesIO:
    return io.BytesIO(log.encode())


def keys(found: Triage) -> list[str]:
    return [one.key for one in found.causes]


def test_the_cause_is_named_and_what_follows_from_it_is_not() -> None:
    found = judged(
        "ERROR 11-30 05:00:00 [core.py:1] ValueError: KV cache is too small\n"
        "RuntimeError: CUDA out of memory\n"
        "RuntimeError: Engine core failed. See root cause above.\n"
    )
    assert found.verdict == judge.CAUSE
    assert keys(found) == ["kv", "oom"]
    assert found.causes[1].follows == "kv"
    assert found.causes[0].line.number == 1
    assert [one.number for one in found.after] == [2]  # the third line only points back


def test_a_healthy_log_is_healthy_and_an_empty_one_is_not() -> None:
    assert judged(BANNER.format("0.19.1") + UP + SERVED).verdict == judge.HEALTHY
    assert judged("").verdict == judge.NONE
    assert judged("hello\n").verdict == judge.NONE


def test_a_failure_that_nobody_knows_has_no_verdict_and_its_lines_are_shown() -> None:
    found = judged(UP + "ERROR 11-30 05:00:00 [x.py:1] ulimit of 10\nOddError: what now\n")
    assert (found.verdict, found.causes) == (judge.NONE, ())
    assert [one.line for one in found.telling] == ["OddError: what now"]
    assert "no signature knows them" in found.reason


def test_two_equal_causes_have_no_verdict() -> None:
    found = judged("ValueError: port taken\nOSError: shard is cut\n")
    assert found.verdict == judge.NONE
    assert keys(found) == ["not", "other"]  # in the order of the log
    assert found.reason == "not and other have equal evidence"


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ("capture_model()\nRuntimeError: CUDA out of memory\n", ["graph", "oom"]),
        ("capture_model()\n" + "\n" * 9 + "RuntimeError: CUDA out of memory\n", ["oom"]),
        ("RuntimeError: CUDA out of memory\n", ["oom"]),
        ("capture_model()\n", []),
        ("OSError: port taken\n", ["not"]),
        ("OSError: port taken\nit is free again\n", []),
        ("hit rate: 0.0%\n", ["picked"]),
        (UP + "hit rate: 0.0%\n", []),
        (UP + "no block found\n", []),
        (UP + "no block found\n" * 2, ["often"]),
        ("no block found\n" * 2 + UP, []),
        (BANNER.format("0.19.1") + UP + "no block found\n" * 2 + BANNER.format("0.19.1") + UP, []),
        ("swap space gone\n", ["old"]),
        (BANNER.format("0.10.2") + "swap space gone\n", ["old"]),
        (BANNER.format("0.19.1") + "swap space gone\n", []),
    ],
)
def test_rules_hold_by_all_of_their_conditions(log: str, expected: list[str]) -> None:
    assert keys(judged(log)) == expected


def test_a_warning_makes_less_sure_than_an_error() -> None:
    quiet = judged("WARNING 11-30 05:00:00 [x.py:1] shard is cut\n").causes[0]
    loud = judged("WARNING 11-30 05:00:00 [x.py:1] shard is cut\nOSError: shard is cut\n").causes[0]
    assert (quiet.sure, loud.sure) == (Sure.LIKELY, Sure.STATED)
    assert loud.line.number == 2
    found = judged("WARNING 11-30 05:00:00 [x.py:1] shard is cut\nOSError: port taken\n")
    assert (found.verdict, keys(found)) == (judge.CAUSE, ["not", "other"])


def test_what_an_earlier_start_died_of_is_past_when_a_later_one_came_up() -> None:
    death, start = "OSError: port taken\n", BANNER.format("0.19.1") + UP
    found = judged(BANNER.format("0.19.1") + death + start + SERVED)
    assert (found.verdict, keys(found)) == (judge.HEALTHY, [])
    assert [one.key for one in found.past] == ["not"]
    assert judged(start + death).verdict == judge.CAUSE
    assert judged(BANNER.format("0.19.1") + death).verdict == judge.CAUSE


def test_a_failure_behind_a_thousand_harmless_lines_is_seen() -> None:
    harmless = "ERROR 11-30 05:00:00 [x.py:1] ulimit of 10\n" * 1000
    assert judged(UP + SERVED + harmless).verdict == judge.HEALTHY
    assert judged(UP + SERVED + harmless + "OddError: what now\n").verdict == judge.NONE


def test_a_server_that_came_up_after_a_hundred_tries_is_up() -> None:
    tries = (BANNER.format("0.19.1") + "OSError: port taken\n" + "\n" * 300) * 100
    assert judged(tries).verdict == judge.CAUSE
    found = judged(tries + BANNER.format("0.19.1") + UP + SERVED)
    assert (found.verdict, [one.key for one in found.past]) == (judge.HEALTHY, ["not"])


def test_how_a_server_ends_that_was_told_to_is_no_failure() -> None:
    told_to = (
        "(APIServer pid=5) INFO 11-30 05:00:00 [launcher.py:2] [shutdown] API server: shutdown triggered\n"
    )
    death = "(APIServer pid=5) ERROR 11-30 05:00:00 [async_llm.py:9] EngineDeadError: engine gone\n"
    start = BANNER.format("0.32.0") + UP + SERVED
    assert judged(start + told_to + death).verdict == judge.HEALTHY
    assert judged(start + death + told_to).verdict == judge.NONE
    assert judged(BANNER.format("0.32.0") + told_to + death).verdict == judge.NONE  # it was never up
    assert (
        judged(start + told_to + death + BANNER.format("0.32.0") + "OSError: port taken\n").verdict
        == judge.CAUSE
    )


def test_what_a_server_refuses_while_it_answers_others_is_the_clients() -> None:
    client = dataclasses.replace(signature("name", says("model .x. does not exist")), layer="client")
    wrong = "ERROR 11-30 05:00:00 [serving.py:1] NotFoundError: model 'x' does not exist\n"
    answering = judged(UP + SERVED + wrong, client)
    assert (answering.verdict, [one.key for one in answering.refused]) == (judge.HEALTHY, ["name"])
    assert "client's mistake" in triaged.as_text(answering)
    assert judged(UP + wrong, client).verdict == judge.CAUSE
    assert judged(wrong, client).verdict == judge.CAUSE
    assert judged(UP + SERVED + wrong + "OddError: x\n", client).verdict == judge.NONE


@pytest.mark.parametrize(
    "line",
    [
        BANNER.format("0.19.1"),
        "(APIServer pid=5) INFO 11-30 [utils.py:299]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.19.1\n",
        "INFO 06-18 21:35:42 llm_engine.py:161] Initializing an LLM engine (v0.19.1) with config: model='/m'\n",
        "vLLM Version                 : 0.19.1\n",
    ],
)
def test_the_release_that_wrote_the_log_is_read(line: str) -> None:
    assert judged(line).version == "0.19.1"


def test_the_machine_confirms_denies_or_has_nothing_to_say() -> None:
    found = judged("ValueError: port taken\nOSError: shard is cut\n")
    confirmed = judge.confirmed(found, {"other": [Reading("MODEL-002", Verdict.FAIL, "a shard is short")]})
    assert (confirmed.verdict, keys(confirmed)[0]) == (judge.CAUSE, "other")
    assert confirmed.causes[0].confirmed
    denied = judge.confirmed(found, {"not": [Reading("START-003", Verdict.OK, "nothing runs")]})
    assert (denied.verdict, keys(denied)[0]) == (judge.CAUSE, "other")
    silent = judge.confirmed(found, {"not": [Reading("START-003", Verdict.UNKNOWN, "not read")]})
    assert silent.verdict == judge.NONE
    text = triaged.as_text(confirmed)
    assert "MODEL-002 fail: a shard is short" in text
    assert "confirmed by this machine" in text


def test_text_and_json_say_the_same() -> None:
    for log in (
        "OSError: port taken\n",
        "ValueError: port taken\nOSError: shard is cut\n",
        UP,
        "OddError: x\n",
        "",
    ):
        found = judged(log)
        text, row = triaged.as_text(found), triaged.as_json(found)
        assert row["verdict"] == found.verdict
        for one in row["causes"]:
            assert one["key"] in text
        assert ("CAUSE" in text) is (found.verdict == judge.CAUSE)
        assert ("HEALTHY" in text) is (found.verdict == judge.HEALTHY)
        assert ("NO VERDICT" in text) is (found.verdict == judge.NONE)
