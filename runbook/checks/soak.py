"""SERVE: what hours of load did to the server, as ``runbook soak`` saw them."""

from collections.abc import Mapping
from typing import Any

from runbook.checks import measured
from runbook.model import (
    Answer,
    Cost,
    Evidence,
    Fix,
    Layer,
    Risk,
    Source,
    check,
    fail,
    ok,
    skip,
    unknown,
    warn,
)
from runbook.probe import Probe
from runbook.serving import soak

HOW = "runbook soak --minutes 30"
ORIGIN = f"read {measured.place('soak')}"
STALL_S = 30.0
LATE_S = 10.0
LOG = "{work}/jobs/server.log"


@check(
    "SERVE-018",
    layer=Layer.SERVE,
    title="The server stays up under load, and its memory does not grow",
    why="A leak of some MiB an hour passes every short load and ends the service in the third night.",
    source=Source(
        "SciPy: theilslopes, Sen's interval of a robust slope",
        "https://docs.scipy.org/doc/scipy/reference/generated/scipy.stats.theilslopes.html",
        "2026-11-30",
    ),
    cost=Cost.SLOW,
    needs_target=True,
)
def stays_up(host: Probe) -> Answer:
    """The record of the last soak: deaths, failures, standstill, and the slope of memory with its interval."""
    facts = measured.of(host, "soak", HOW)
    if isinstance(facts, Answer):
        return skip(f"no soak was run on this server; {HOW} does")  # it takes longer than a walk
    grown = {
        name: soak.growth([(x, y) for x, y in facts[name]], facts["memory"])
        for name in ("rss", "gpu")
        if facts[name]
    }
    seen = [
        Evidence("minutes of load", round(facts["seconds"] / 60, 1), ORIGIN),
        Evidence("requests", facts["requests"], ORIGIN),
        Evidence("failed", facts["failed"], ORIGIN),
        Evidence("tokens", facts["tokens"], ORIGIN),
        Evidence("longest standstill (s)", facts["stalled_s"], ORIGIN),
        Evidence("deaths", len(facts["deaths"]), ORIGIN),
        *(Evidence({"rss": "memory", "gpu": "GPU memory"}[name], one.says, ORIGIN) for name, one in grown.items()),
    ]  # fmt: skip
    if wrong := _wrong(facts, list(grown.values())):
        return fail(*seen, fix=wrong[1], reason=wrong[0])
    if still := _open(facts, list(grown.values())):
        return unknown(still, *seen)
    if facts["late_s"] > LATE_S:
        return warn(*seen, reason=f"the server did not keep up: requests were sent up to {facts['late_s']:.0f} s late, so it was always full")  # fmt: skip
    return ok(*seen)


def _wrong(facts: Mapping[str, Any], grown: list[soak.Growth]) -> tuple[str, Fix] | None:
    """The gravest thing that went wrong, and what to do."""
    if facts["deaths"]:
        said = f"it died {len(facts['deaths'])} time(s), at last: {facts['deaths'][-1][1]}"
        return said, Fix("Read how it ended", ("runbook status", f"less {LOG}"))
    leak = next((one.says for one in grown if one.verdict == soak.LEAK), "")
    if leak:
        return leak, Fix("Restart it before the memory ends, and report the leak with the record of the soak", ("runbook stop",), Risk.RESTART)  # fmt: skip
    if facts["stalled_s"] >= STALL_S:
        return "requests were under way and no token came", Fix("See what it does while it stands still", ("runbook status",))  # fmt: skip
    if facts["failed"]:
        return next(iter(facts["errors"]), "requests failed"), Fix("Find out why requests fail", ("runbook validate",))  # fmt: skip
    return None


def _open(facts: Mapping[str, Any], grown: list[soak.Growth]) -> str:
    """Why there is no verdict; "" when there is one."""
    if facts["ended"] == "running":
        return "it still runs, or was killed: runbook soak --resume goes on"
    if facts["ended"] != "done":
        return f"{facts['ended']}; runbook soak --resume goes on"
    if not facts["tokens"]:
        return "the server's counters of tokens could not be read"
    if not grown:
        return "the memory of the server's processes could not be read"
    return next((f"no verdict about memory yet: {one.says}" for one in grown if one.verdict == soak.OPEN), "")


CHECKS = (stays_up,)
