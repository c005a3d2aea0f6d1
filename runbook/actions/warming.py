"""Warm a server up with every kind of request it will see, in rounds, until waits stop falling and nothing is compiled."""

import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from runbook import measured
from runbook.actions import Context, Say, looking
from runbook.actions.gauging import launch_value, max_model_len, own
from runbook.actions.jobs import Job, Jobs
from runbook.actions.server import NAME
from runbook.actions.watching import made_since
from runbook.endpoint import Endpoint, Reply
from runbook.parse import boot_log
from runbook.parse.numbers import whole
from runbook.serving import warm
from runbook.serving.warm import Served, Shape

CAP_S = 120.0
PATIENCE_S = 180.0  # for one request: the first ones may wait for a compiler
REPEATS = 4
UNTOLD_LENGTH, UNTOLD_SEQS = 2048, 8
CALIBRATE = 64
COARSE_S = 0.02  # a file's time comes from a clock that ticks a few times in that
REFUSED = (
    httpx.codes.BAD_REQUEST,
    httpx.codes.NOT_FOUND,
    httpx.codes.UNPROCESSABLE_ENTITY,
    httpx.codes.NOT_IMPLEMENTED,
)
FINISHED = "vllm:request_success_total"
TEXT = """a driver and its runtime met on the same machine where some old wheel reads each graph while no server
waits for long so that every answer comes back in time and the log has nothing more to say of it"""
REST_S = 2.0
"""After a second of rest and more the next request waited 0.2 to 0.4 s on the 2-core box, warm or not (docs/warmup.md)."""

ROUSED_BY = 3
WORDS = TEXT.split()


class WarmUp:
    """Send rounds of every shape until ``warm.trend`` says flat and nothing was compiled in the newest, or ``cap_s`` is over.

    Without ``endpoint`` it is this workspace's own server, whose log and caches are looked at too; what was measured is
    then written for the checks. ``facts`` holds it afterwards.
    """

    def __init__(self, ctx: Context, endpoint: Endpoint | None = None, cap_s: float = CAP_S) -> None:
        self.ctx = ctx
        self.cap_s = cap_s
        self.facts: dict[str, Any] = {}
        self._own = endpoint is None
        self._endpoint = endpoint
        self._random = random.Random(time.time_ns())  # noqa: S311 - prompts nobody sent before, no secret
        self._per_word = 3.0
        self._refused: dict[str, str] = {}
        self._sent = 0

    def plan(self) -> list[str]:
        """What is sent and when it ends."""
        return [
            "send      rounds of every kind of request: probe (tiny; chat, log-probabilities, schema ...), prompt lengths,",
            "          batches, profile (a usual one), stress (long ones at once)",
            "until     waits for the first token stop falling, no shape stalls and nothing was compiled in the last round,",
            f"          at most {self.cap_s:.0f} s",
            "then      kinds of request never sent before, each against its own repeats",
        ]

    def apply(self, say: Say) -> None:
        """Warm it up.

        Raises:
            ActionFailed: there is no server, or it stopped answering; the named fault.
        """
        job = Jobs(self.ctx.work.jobs).get(NAME) if self._own else None
        if self._own:
            measured.path(self.ctx.work, "warm").unlink(missing_ok=True)
        server = self._endpoint or own(self.ctx.work, job)
        served = _served(server, job)
        asked = warm.shapes(served)
        before = server.metrics().total(FINISHED) if self._own else None
        log = Watch(self.ctx, job)
        began = time.monotonic()
        rounds: list[dict[str, float]] = []
        while True:
            log.begin()
            started, sent = time.monotonic(), self._sent
            rounds.append(self._round(server, asked, first=not rounds))
            compiled, made = log.lines(), log.made()
            trend = warm.trend(rounds)
            say(
                f"round {len(rounds)}: {self._sent - sent} requests in {time.monotonic() - started:.1f} s; "
                f"{_words(trend)}; compiled: {_compiled(compiled, made)}"
            )
            quiet = not compiled and not made
            if trend.flat and quiet:
                ended = "flat"
                break
            if time.monotonic() - began >= self.cap_s:
                # A stall that no compile explains, in a log that was looked at, is the machine's.
                unclear = quiet and not trend.falls and (compiled is not None or not trend.stalled)
                ended = "noisy" if unclear and len(rounds) >= warm.FEWEST else "still falling"
                break
        seconds = time.monotonic() - began
        self._rouse(server, asked[0])
        found = self._new(server, served)
        time.sleep(REST_S)  # the pause is what is measured
        after_rest = self._wait(server, asked[0], must=True)
        table = warm.rows(asked, rounds)
        slowest = max(table, key=lambda row: row.first_s)
        self.facts = {
            "ended": ended, "rounds": len(rounds), "seconds": round(seconds, 1), "cap_s": self.cap_s, "requests": self._sent,
            "asked_before": None if before is None else int(before),
            "trend": _interval(trend.ratio), "stalled": list(trend.stalled),
            "compiled": len(compiled or ()), "compiled_example": compiled[0][:160] if compiled else "",
            "cache_files": sum((made or {}).values()), "log_seen": compiled is not None,
            "first_s": round(table[0].first_s, 4),
            "slowest_first": slowest.name, "slowest_first_s": round(slowest.first_s, 4),
            "shapes": [warm.as_facts(row) for row in table], "refused": self._refused,
            "new": {
                **_interval(found.ratio), "stalled": list(found.stalled), "repeats": REPEATS,
                "kinds": [warm.as_facts(row) for row in found.kinds],
            },
            "now_s": round(found.kinds[0].first_s if found.kinds else table[0].steady_s, 4),
            "rest_s": REST_S, "after_rest_s": None if after_rest is None else round(after_rest, 4),
            "served": {"max_model_len": served.max_model_len, "max_num_seqs": served.max_num_seqs},
        }  # fmt: skip
        if job is not None:
            measured.write(self.ctx.work, "warm", job.marker, self.facts)
        say(
            f"{ended} after {len(rounds)} rounds, {self._sent} requests and {seconds:.1f} s; "
            f"{_user(before)} {self.facts['first_s']:.3f} s, now waits {self.facts['now_s']:.3f} s"
        )

    def _rouse(self, server: Endpoint, known: Shape) -> None:
        """Known requests first: the server rested while its log was looked at, and a rest has a price of its own."""
        for _ in range(ROUSED_BY):
            self._wait(server, known, must=True)

    def _round(self, server: Endpoint, asked: tuple[Shape, ...], *, first: bool) -> dict[str, float]:
        waits: dict[str, float] = {}
        for number, shape in enumerate(asked):
            if shape.name in self._refused:
                continue
            if (wait := self._wait(server, shape, must=number == 0)) is not None:
                waits[shape.name] = wait
            if first and number == 0:
                self._calibrate(server)
        return waits

    def _new(self, server: Endpoint, served: Served) -> warm.New:
        """Kinds take turns, each begins one turn later: what a change of kind costs, and a busy moment, falls on all alike."""
        kinds = warm.unseen(served)
        waits: dict[str, list[float]] = {shape.name: [] for shape in kinds}
        for turn in range(len(kinds) + REPEATS - 1):
            for shape in kinds[max(0, turn - REPEATS + 1) : turn + 1]:
                if (wait := self._wait(server, shape)) is not None:
                    waits[shape.name].append(wait)
        whole = {name: each for name, each in waits.items() if len(each) == REPEATS}
        return warm.new(whole, {shape.name: shape.kind for shape in kinds})

    def _wait(self, server: Endpoint, shape: Shape, *, must: bool = False) -> float | None:
        """Seconds to the first token, the median where several are sent at once; None where the server refuses the shape."""
        prompts = self._prompts(shape)
        if len(prompts) == 1:  # in this thread, where Ctrl-C ends it
            replies = [self._ask(server, shape, prompts[0])]
        else:
            with ThreadPoolExecutor(shape.at_once) as pool:
                replies = list(pool.map(lambda words: self._ask(server, shape, words), prompts))
        self._sent += len(replies)
        for reply in replies:
            if reply.error and reply.status in REFUSED and not must:
                self._refused[shape.name] = reply.error[:200]
                return None
            if fault := looking.fault(reply, server, self.ctx.work if self._own else None):
                raise fault.failed()
        return statistics.median(one.ttft_s if one.ttft_s is not None else one.seconds for one in replies)

    def _ask(self, server: Endpoint, shape: Shape, words: str) -> Reply:
        more = {"temperature": 0.0, **shape.more, "timeout": PATIENCE_S}
        if not shape.chat:
            return server.complete(words, shape.out, stream=shape.stream, **more)
        content: Any = words
        if shape.image:
            content = [
                {"type": "image_url", "image_url": {"url": warm.GREY}},
                {"type": "text", "text": words},
            ]
        return server.chat([{"role": "user", "content": content}], shape.out, stream=shape.stream, **more)

    def _prompts(self, shape: Shape) -> list[str]:
        """Texts of about that many tokens; each begins as none did before, so that no prefix cache knows it.

        Two words at least: a prompt of one token kills vLLM 0.32.0 on a CPU with a hybrid model ("causal_conv1d_fwd_cpu:
        expect x to be transposed."; docs/warmup.md).
        """
        number = max(2, int(shape.tokens / self._per_word))
        return [" ".join(self._random.choices(WORDS, k=number)) if number < 4  # noqa: PLR2004 - no room for a number
                else f"{self._random.getrandbits(32)} " + " ".join(self._random.choices(WORDS, k=number - 3))
                for _ in range(shape.at_once)]  # fmt: skip

    def _calibrate(self, server: Endpoint) -> None:
        """How many tokens a word has in this model's vocabulary."""
        reply = server.complete(" ".join(self._random.choices(WORDS, k=CALIBRATE)), 1, timeout=PATIENCE_S)
        if reply.prompt_tokens:
            self._per_word = reply.prompt_tokens / CALIBRATE


class Watch:
    """What was compiled since ``begin``, by the server's log and its caches; None for a server that is not ours."""

    def __init__(self, ctx: Context, job: Job | None) -> None:
        self._log = Path(job.log) if job else None
        self._caches = ctx.work.caches(ctx.stack.name)
        self._offset, self._since = 0, 0.0

    def begin(self) -> None:
        """From here on."""
        self._since = time.time() - COARSE_S
        self._offset = self._log.stat().st_size if self._log else 0

    def lines(self) -> tuple[str, ...] | None:
        """Lines of the log that tell of compiling."""
        if self._log is None:
            return None
        with self._log.open("rb") as file:
            file.seek(self._offset)
            return boot_log.compile_lines(file.read().decode("utf-8", "replace"))

    def made(self) -> Mapping[str, int] | None:
        """Files that compilers wrote, by family."""
        return made_since(self._caches, self._since) if self._log else None


def _served(server: Endpoint, job: Job | None) -> Served:
    length = max_model_len(server) or UNTOLD_LENGTH
    if job is None:
        return Served(length, UNTOLD_SEQS, tools=True, images=False)
    seqs = whole(launch_value(job.argv, "--max-num-seqs"))
    return Served(
        length, seqs or warm.MOST_AT_ONCE, tools="--tool-call-parser" in job.argv, images=_sees(job.argv)
    )


def _sees(argv: tuple[str, ...]) -> bool:
    """True for a model with a vision tower that was not started for text only.

    A refused image is not tried just to see: vLLM 0.19.1 writes a traceback into its log for it.
    """
    try:
        config = json.loads((Path(launch_value(argv, "--model")) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    limit = launch_value(argv, "--limit-mm-per-prompt").replace(" ", "")
    return "vision_config" in config and "--language-model-only" not in argv and '"image":0' not in limit


def _interval(found: Any) -> dict[str, float | None]:  # noqa: ANN401 - an Interval or nothing
    if found is None:
        return {"value": None, "low": None, "high": None}
    return {
        name: None if (one := getattr(found, name)) is None else round(one, 3)
        for name in ("value", "low", "high")
    }


def _user(before: float | None) -> str:
    """Only who asks first is the first user; of a server elsewhere nobody knows."""
    return "the first user would have waited" if before == 0 else "the first request here waited"


def _words(trend: warm.Trend) -> str:
    if trend.ratio is None:
        return "nothing to compare with yet"
    low, high = trend.ratio.low, trend.ratio.high
    words = f"the best before waited {trend.ratio.value:.2f} times as long"
    words += f" (95 %: {low:.2f} to {high:.2f})" if low is not None and high is not None else ""
    return words + (f", stalled: {', '.join(trend.stalled)}" if trend.stalled else "")


def _compiled(lines: tuple[str, ...] | None, made: Mapping[str, int] | None) -> str:
    if lines is None or made is None:
        return "not ours to see"
    found = Counter(made)
    if lines:
        found["lines of the log"] = len(lines)
    return ", ".join(f"{number} {name}" for name, number in found.most_common(3)) or "nothing"
