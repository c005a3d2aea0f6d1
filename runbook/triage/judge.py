"""From what was found in a log to the one cause: which rules hold, which cause explains which, and what is only normal."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from runbook.model import Verdict
from runbook.triage.scan import Place, Seen
from runbook.triage.signatures import Normal, Rule, Signature, Sure

CAUSE, NONE, HEALTHY = "cause", "none", "healthy"
TRACEBACK = 400
"""Lines that a traceback has at most, all of its chain."""

CLIENT = "client"
"""The layer of causes that lie with who asks."""

# What tells of a failure without naming its cause. Each is also looked for in healthy logs by the tests.
FAILURES = (
    r"(?:Error|Exception|Interrupt)(?:: |\(|$|\s*$)",
    r"\b(?:ERROR|CRITICAL|FATAL)\b",
    r"Traceback \(most recent call last\)",
    r"(?i)\b(?:fatal )?error: ",
    r"Segmentation fault|core dumped|Illegal instruction|\bKilled\b|Out of memory: Killed process",
    r"(?i)\bNVRM: .*(?:fail|Xid)",
    r"exited with (?:code|status) [1-9]|exit code: [1-9]|status=\d+/(?:FAILURE|KILL|ABRT|SEGV)",
    r"died unexpectedly|CrashLoopBackOff|OOMKilled",
)
STARTED = r"Application startup complete"
BEGAN = r"(?:vLLM API server version|vLLM server version|█.*\bversion) v?\d"
# Who says these was told to end; what a server that was up writes behind them is how its parts part.
ASKED_TO_END = (
    r"\[shutdown\] API server: shutdown triggered",
    r"trigger received signal=SIG(?:TERM|INT)",
    r"(?i)received (?:signal )?SIG(?:TERM|INT)\b",
    r"Gracefully stopping|KeyboardInterrupt",
)
ANSWERED = r"\"POST /v1/\S* HTTP/1\.[01]\" 200"
REFUSED = r"\"POST /v1/\S* HTTP/1\.[01]\" 4\d\d"
# Lines that a server writes which does what it should.
WELL = (
    STARTED,
    r"Starting vLLM (?:API )?server",
    r"HTTP/1\.[01]\" 200",
    r"Avg generation throughput: [0-9.]+ tokens/s",
    r"Successfully installed |Installed \d+ packages? in ",
)
VERSION = (
    r"(?i)(?:vLLM (?:API )?server version|█.*version|LLM engine \(|vLLM Version\s*:|vllm==)\s*v?\d+\.\d+"
)
_NUMBER = re.compile(
    r"(?i)(?:version\s*:?|engine \(|vllm==)\s*v?(\d+\.\d+(?:\.\d+)?(?:(?:rc|\.post|\.dev)\d+)*)"
)


@dataclass(frozen=True)
class Reading:
    """What a check of the machine at hand said of a cause."""

    check: str
    verdict: Verdict
    text: str


@dataclass(frozen=True)
class Cause:
    """A cause with the line that is it, the others that speak for it, and how sure the text makes it.

    ``follows`` names the cause that explains this one; ``readings`` are those of the machine that were asked.
    """

    signature: Signature
    rule: Rule
    sure: Sure
    line: Place
    also: tuple[Place, ...] = ()
    follows: str = ""
    readings: tuple[Reading, ...] = ()

    @property
    def key(self) -> str:
        """The key of its signature."""
        return self.signature.key

    @property
    def confirmed(self) -> bool:
        """True when a check of the machine found the same."""
        return any(one.verdict is Verdict.FAIL for one in self.readings)

    @property
    def denied(self) -> bool:
        """True when every check that could answer found the machine innocent of it."""
        answered = [one for one in self.readings if one.verdict not in (Verdict.SKIP, Verdict.UNKNOWN)]
        return bool(answered) and all(one.verdict is Verdict.OK for one in answered)

    @property
    def rank(self) -> tuple[int, int, int, int, int]:
        """What orders causes, best first when sorted in reverse; the last part is the place in the log."""
        weight = self.sure.weight - (1 if self.denied else 0)
        return (
            0 if self.follows else 1,
            1 if self.confirmed else 0,
            weight,
            len(self.rule.says),
            -self.line.number,
        )


@dataclass(frozen=True)
class Triage:
    """What a log came to.

    ``telling`` are lines that speak of a failure; ``after`` those that follow from the first cause. ``past`` are causes of
    earlier starts, and ``refused`` mistakes of clients of a server that answered others.
    """

    verdict: str
    causes: tuple[Cause, ...]
    telling: tuple[Place, ...]
    after: tuple[Place, ...]
    past: tuple[Cause, ...] = ()
    refused: tuple[Cause, ...] = ()
    version: str = ""
    lines: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Span:
    """Lines of a source that say nothing of its present state: from ``first`` up to but without ``last``."""

    source: str
    first: int
    last: float


def patterns(signatures: Iterable[Signature], normal: Iterable[Normal]) -> tuple[str, ...]:
    """Every pattern that judging needs to be looked for."""
    rules = [rule for one in signatures for rule in one.rules]
    return (
        *(pattern for rule in rules for pattern in (*rule.says, *rule.never)),
        *(one.says for one in normal),
        *FAILURES,
        *WELL,
        *ASKED_TO_END,
        ANSWERED,
        REFUSED,
        BEGAN,
        VERSION,
    )


def judge(seen: Seen, signatures: Sequence[Signature], normal: Sequence[Normal]) -> Triage:
    """Judge one reading of logs."""
    version = _version(seen)
    history = _history(seen)
    held = [found for one in signatures if (found := _best(one, seen, version, history))]
    past = tuple(one for one in held if _within(one.line, history))
    present = [one for one in held if one not in past]
    # Where as many were refused as were answered, that is what is wrong with the service.
    answers = bool(seen.of(STARTED)) and len(seen.of(ANSWERED)) > len(seen.of(REFUSED))
    refused = tuple(one for one in present if answers and one.signature.layer == CLIENT)
    telling = _telling(seen, normal, history, refused)
    well = any(seen.of(one) for one in WELL) and not telling
    # Of a server that does its work and reports no failure, hints are no cause.
    causes = ranked(
        [one for one in present if one not in refused and not (well and one.sure is Sure.POSSIBLE)]
    )
    first = causes[0].line if causes else None
    after = tuple(one for one in telling if first and _behind(one, first))
    verdict, reason = _verdict(causes, telling, seen)
    return Triage(verdict, causes, telling, after, past, refused, version, seen.lines, reason)


def confirmed(triage: Triage, readings: Mapping[str, Sequence[Reading]]) -> Triage:
    """The same with what checks of the machine said, by key of the cause."""
    told = [replace(one, readings=tuple(readings.get(one.key, ()))) for one in triage.causes]
    causes = ranked(told)
    verdict, reason = (triage.verdict, triage.reason) if not causes else _decided(causes)
    return replace(triage, causes=causes, verdict=verdict, reason=reason)


def ranked(causes: Sequence[Cause]) -> tuple[Cause, ...]:
    """Best first; a cause that another one explains, at least as surely, goes behind all that stand for themselves."""
    placed = [
        replace(one, follows=next((high.key for high in causes if _explains(high, one)), ""))
        for one in causes
    ]
    return tuple(sorted(placed, key=lambda one: one.rank, reverse=True))


def _explains(high: Cause, low: Cause) -> bool:
    return low.key in high.signature.over and high.sure.weight >= low.sure.weight


def _verdict(causes: Sequence[Cause], telling: Sequence[Place], seen: Seen) -> tuple[str, str]:
    if causes:
        return _decided(causes)
    if telling:
        return NONE, "lines speak of a failure, and no signature knows them"
    if any(seen.of(one) for one in WELL):
        return HEALTHY, "no line speaks of a failure, and the server did its work"
    return NONE, "no line speaks of a failure, and none of a server at work"


def _decided(causes: Sequence[Cause]) -> tuple[str, str]:
    """One cause, or two that nothing sets apart."""
    if len(causes) > 1 and causes[0].rank[:-1] == causes[1].rank[:-1]:
        return NONE, f"{causes[0].key} and {causes[1].key} have equal evidence"
    return CAUSE, ""


def _best(one: Signature, seen: Seen, version: str, history: Sequence[Span]) -> Cause | None:
    found = [held for rule in one.rules if (held := _held(one, rule, seen, version, history))]
    return max(found, key=lambda cause: (not _within(cause.line, history), cause.rank)) if found else None


def _held(one: Signature, rule: Rule, seen: Seen, version: str, history: Sequence[Span]) -> Cause | None:
    """The cause by one rule; None when the rule does not hold."""
    groups = [seen.of(pattern) for pattern in rule.says]
    if rule.up:
        groups[0] = [place for place in groups[0] if any(_behind(place, up) for up in seen.of(STARTED))]
    if not all(groups) or _ruled_out(rule, seen, version):
        return None
    if rule.times > 1 and sum(not _within(place, history) for place in groups[0]) < rule.times:
        return None
    # A line of the present, the loudest of those that say the same, one that ends a traceback, then the first.
    for line in sorted(
        groups[0], key=lambda place: (_within(place, history), place.quiet, not place.exception)
    ):
        also = [_near(line, places, rule.within) for places in groups[1:]]
        if all(also):
            sure = rule.sure.less() if line.quiet else rule.sure
            others = tuple(place for place in also if place and place.number != line.number)
            return Cause(one, rule, sure, line, others)
    return None


def _ruled_out(rule: Rule, seen: Seen, version: str) -> bool:
    """True when a line speaks against the rule, or the log is none that it is for."""
    another = (
        version and rule.versions and not SpecifierSet(rule.versions).contains(version, prereleases=True)
    )
    return (
        bool(another)
        or (rule.excerpt and bool(seen.of(STARTED)))
        or any(seen.of(pattern) for pattern in rule.never)
    )


def _near(line: Place, places: Sequence[Place], within: int | None) -> Place | None:
    """The place nearest to a line; None when none is near enough."""
    same = [one for one in places if one.source == line.source]
    if within is None:
        return min(same, key=lambda one: abs(one.number - line.number)) if same else places[0]
    near = [one for one in same if abs(one.number - line.number) <= within]
    return min(near, key=lambda one: abs(one.number - line.number)) if near else None


def _version(seen: Seen) -> str:
    """The release of vLLM that wrote the log; "" when it does not say."""
    for place in seen.of(VERSION):
        if said := _NUMBER.search(place.line):
            return str(Version(said[1]))
    return ""


def _history(seen: Seen) -> list[Span]:
    """What lies before the last start that came up, and how servers that were up ended when they were asked to."""
    spans = []
    worked = [one for pattern in WELL for one in seen.of(pattern)]
    for source in {one.source for one in worked}:
        up = sorted(one.number for one in worked if one.source == source)
        began = [one.number for one in seen.of(BEGAN) if one.source == source]
        if before := [one for one in began if one <= up[-1]]:
            spans.append(Span(source, 0, before[-1]))
        asked = sorted(
            one.number for pattern in ASKED_TO_END for one in seen.of(pattern) if one.source == source
        )
        spans += [
            Span(source, end, next((one for one in began if one > end), float("inf")))
            for end in asked
            if end > up[0]
        ]
    return spans


def _within(one: Place, spans: Sequence[Span]) -> bool:
    return any(one.source == span.source and span.first <= one.number < span.last for span in spans)


def _telling(
    seen: Seen, normal: Sequence[Normal], history: Sequence[Span], refused: Sequence[Cause]
) -> tuple[Place, ...]:
    """Lines that speak of a failure, in order, without what is normal, is over, or only points elsewhere."""
    shadows = {(one.source, one.number) for row in normal if row.shadow for one in seen.of(row.says)}
    harmless = {(one.source, one.number) for row in normal if not row.shadow for one in seen.of(row.says)}
    harmless |= {
        (one.source, one.number) for cause in refused for says in cause.rule.says for one in seen.of(says)
    }
    found = {
        (one.source, one.number): one
        for pattern in FAILURES
        for one in seen.of(pattern)
        if not one.quiet and not _within(one, history)
    }
    lines = [one for _, one in sorted(found.items())]
    # A heading or a frame belongs to the exception that ends its traceback, and counts as that does.
    end: Place | None = None
    left, own = [], []
    for one in reversed(lines):
        end = one if one.exception else end
        belongs = end if end and 0 <= end.number - one.number <= TRACEBACK else one
        both = {(one.source, one.number), (belongs.source, belongs.number)}
        left += [] if both & harmless else [one]
        own += [] if both & (harmless | shadows) else [one]
    # Lines that point back count where nothing else is left; where exceptions are named, frames say nothing more.
    told = own or left
    return tuple(reversed([one for one in told if one.exception] or told))


def _behind(one: Place, first: Place) -> bool:
    return one.source == first.source and one.number > first.number
