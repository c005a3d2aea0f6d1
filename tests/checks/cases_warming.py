"""WARM-012 to WARM-014 and SERVE-013: what a warm-up and a watch over a loaded server wrote, of this start of it."""

import json
from typing import Any

from host import FAIL, OK, SKIP, UNKNOWN, WARN, Case, Row, table

WARM, LIMITS, BOOT = (f"read {{work}}/jobs/server.{kind}.json" for kind in ("warm", "limits", "boot"))
SERVER = {"server": "server.1"}
BASE = {BOOT: json.dumps(SERVER)}


def shape(name: str, first: float = 0.06, steady: float = 0.02) -> dict[str, Any]:
    return {"name": name, "kind": "probe", "first_s": first, "steady_s": steady}


NEW: dict[str, Any] = {
    "value": 1.02, "low": 0.93, "high": 1.08, "stalled": [], "repeats": 5,
    "kinds": [shape("one token", 0.021), shape("chat", 0.02)],
}  # fmt: skip
FACTS: dict[str, Any] = {
    **SERVER, "ended": "flat", "rounds": 3, "seconds": 9.4, "cap_s": 60.0, "requests": 210, "asked_before": 0,
    "trend": {"value": 1.01, "low": 0.97, "high": 1.06}, "stalled": [], "compiled": 0, "compiled_example": "",
    "cache_files": 0, "log_seen": True, "first_s": 3.9, "slowest_first": "one token", "slowest_first_s": 3.9,
    "now_s": 0.021, "shapes": [shape("one token", 3.9, 0.063), shape("prompt of 16"), shape("prompt of 1638")],
    "refused": {}, "new": NEW, "served": {"max_model_len": 2048, "max_num_seqs": 16},
}  # fmt: skip


def warmed(**changes: Any) -> dict[str, Any]:
    return {WARM: json.dumps(FACTS | changes)}


def new(**changes: Any) -> dict[str, Any]:
    return warmed(new=NEW | changes)


OPEN = {"value": None, "low": None, "high": None}
CAPPED = warmed(ended="still falling", stalled=["JSON schema"], trend={"value": 1.4, "low": 1.2, "high": 1.6})
COMPILES = warmed(
    ended="still falling", compiled=2, cache_files=7, compiled_example="812: torch.compile takes 21 s"
)
LONG = new(value=1.9, low=1.4, high=2.2, kinds=[shape("one token", 0.12, 0.063)])
BY_MOMENTS = new(value=1.9, low=1.4, high=2.2, kinds=[shape("one token", 0.019, 0.01)])
NOISY = new(value=1.15, low=0.9, high=1.5)
STALLS = new(stalled=["another JSON schema"])
EARLIER = warmed(server="server.0")


def bound(limit: str, says: str, moves: str = "", **more: Any) -> dict[str, Any]:
    facts = {
        **SERVER,
        "limit": limit,
        "says": says,
        "moves": moves,
        "evidence": [["running (median)", 2.0]],
        **more,
    }
    return {LIMITS: json.dumps(facts)}


PLACES = bound("max-num-seqs", "requests waited while 2 ran, which is all that --max-num-seqs 2 allows", "raise --max-num-seqs")  # fmt: skip

CASES: list[Case] = [
    *table(
        "WARM-012",
        BASE,
        Row("flat", OK, warmed(), {"ended": "flat", "rounds": 3, "best before / last round": "1.01 (0.97 to 1.06)", "compiled in the last round": "nothing"}),
        Row("flat, elsewhere", OK, warmed(log_seen=False), {"compiled in the last round": None}),
        Row("one shape stood still", WARN, CAPPED, {"stalled in the last round": "JSON schema"}, says="its cap"),
        Row("still compiling", WARN, COMPILES, {"compiled in the last round": "2 lines of the log, 7 files: 812: torch.compile takes 21 s"}),
        Row("too noisy", WARN, warmed(ended="noisy", trend=OPEN), {"best before / last round": None}, says="busy"),
        Row("not warmed", UNKNOWN, {WARM: None}, says="runbook warm-up"),
        Row("another start's", UNKNOWN, EARLIER, says="another start"),
    ),
    *table(
        "WARM-013",
        BASE,
        Row("as long as its repeats", OK, warmed(), {"first over steady": "1.02 (0.93 to 1.08)", "the very first request (s)": 3.9, "a first request now (s)": 0.021, "the dearest first": "3.900 s (one token)"}),
        Row("others asked before", OK, warmed(asked_before=20), {"requests before the warm-up": 20}),
        Row("longer", FAIL, LONG, {"first over steady": "1.90 (1.40 to 2.20)"}, says="waits longer"),
        Row("longer by what nobody feels", WARN, BY_MOMENTS, says="by 9 ms"),
        Row("longer within the noise", WARN, NOISY, says="noise"),
        Row("a wide interval", WARN, new(value=0.9, low=0.6, high=1.9), says="too busy"),
        Row("one kind stands still", WARN, STALLS, says="another JSON schema"),
        Row("hardly answered", UNKNOWN, new(**OPEN), says="too few"),
        Row("two kinds", UNKNOWN, new(value=1.0, low=None, high=None), {"first over steady": "1.00 (? to ?)"}),
        Row("not warmed", UNKNOWN, {WARM: None}),
    ),
    *table(
        "WARM-014",
        BASE,
        Row("all", OK, warmed(), {"shapes": 3, "longest prompt": "1638", "not served": "none"}),
        Row("no schema here", OK, warmed(refused={"JSON schema": "BadRequestError: no"}), {"not served": "JSON schema"}),
        Row("served once", WARN, warmed(refused={"one token": "BadRequestError: no"}), says="refused later"),
        Row("nothing answered", SKIP, warmed(shapes=[]), {"longest prompt": None}),
        Row("not warmed", UNKNOWN, {WARM: None}),
    ),
    *table(
        "SERVE-013",
        BASE,
        Row("places", OK, PLACES, {"limit": "max-num-seqs", "what moves it": "raise --max-num-seqs", "running (median)": 2.0}),
        Row("nothing reached", OK, bound("none reached", "no request waited"), {"limit": "none reached"}),
        Row("idle", SKIP, bound("idle", "nothing was asked of it"), says="nothing was asked"),
        Row("the client", WARN, bound("client", "3 of 64 requests were in the engine"), says="not the server"),
        Row("stuck", FAIL, bound("stuck", "requests ran for 12 s and no token came"), says="no token"),
        Row("thin", UNKNOWN, bound("no verdict", "2 readings under load; 5 are needed"), says="5 are needed"),
        Row("not watched", UNKNOWN, {LIMITS: None}, says="runbook limits"),
        Row("another start's", UNKNOWN, {**PLACES, BOOT: json.dumps({"server": "server.2"})}, says="another start"),
    ),
]  # fmt: skip
