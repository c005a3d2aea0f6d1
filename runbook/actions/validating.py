"""Is the service right, and is it fast enough? Canaries, then rising load, then canaries again; ``jobs/server.load.json``."""

import contextlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runbook import measured
from runbook.actions import Context, Say, aiperf, canaries, looking
from runbook.actions.bench import Bench, Load, Said
from runbook.actions.gauging import Gauge, launched, own
from runbook.actions.jobs import LAST_WORDS_S, Job, Jobs
from runbook.actions.model_files import folder_of
from runbook.actions.server import NAME
from runbook.endpoint import Endpoint, Reply
from runbook.errors import ActionFailed
from runbook.parse.metrics import Metrics
from runbook.serving import knee, limits, load, slo
from runbook.serving.load import Step
from runbook.serving.reading import Reading
from runbook.workspace import write_whole

QUICK = {"cpu": 32, "cuda": 96}
LENGTHS = {"cpu": (64, 16), "cuda": (512, 128)}
STEP_S = 10.0
QUICK_S = 5.0
QUICK_TRIES = 4
FEWEST, MOST = 8, 1024
DOUBLING = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
COPIES = 4
SETTLE_S = 5.0
GAUGE_S = 0.25
CHAT = "openai-chat"
STANDSTILL_S = 120.0  # a long prompt on a slow machine takes its time


@dataclass(frozen=True)
class Asked:
    """What is to be validated. ``levels`` are requests at once, or a second with ``open_loop``; none: doubling until it bends.

    ``step_s`` is about how long each load is held; lengths 0 are those of the device.
    """

    objectives: tuple[slo.Objective, ...] = ()
    words: tuple[str, ...] = ()
    quick: bool = False
    levels: tuple[float, ...] = ()
    open_loop: bool = False
    input_len: int = 0
    output_len: int = 0
    step_s: float = STEP_S
    second: str = ""


class Validate:
    """Plan and measure; judged by the checks that read what is written.

    With ``endpoint`` it is a server elsewhere: nothing is written, and ``facts`` holds what was measured. ``tokenizer`` is the
    folder of one, by default the model's.
    """

    def __init__(
        self, ctx: Context, asked: Asked, endpoint: Endpoint | None = None, tokenizer: Path | None = None
    ) -> None:
        self.ctx = ctx
        self.asked = asked
        self.endpoint = endpoint
        self.tokenizer = tokenizer or folder_of(ctx)
        self.facts: dict[str, Any] = {}
        device = ctx.stack.device
        known = LENGTHS["cuda" if device == "cuda" else "cpu"]
        self.lengths = (asked.input_len or known[0], asked.output_len or known[1])
        self.jobs = Jobs(ctx.work.jobs)
        self.chart = ctx.work.jobs / f"{NAME}.load.svg"

    def plan(self) -> list[str]:
        """What would be sent."""
        one, (read, made) = self.asked, self.lengths
        unit = "a second" if one.open_loop else "at once"
        levels = (
            ", ".join(f"{level:g}" for level in one.levels) or "1, 2, 4, ... until more load brings no more"
        )
        steps = (
            f"{self.quick().number} requests"
            if one.quick
            else f"requests {unit}: {levels}; then with log-probabilities, and as chat"
        )
        return [
            f"canaries  {len(canaries.PROMPTS)} greedy answers of {canaries.TOKENS} tokens, before, together, and after",
            f"load      vllm bench serve, {read} tokens in and {made} out, {steps}",
            *([f"then      the same load by {one.second}"] if one.second else []),
            f"write     {measured.path(self.ctx.work, 'load')}",
        ]  # fmt: skip

    def apply(self, say: Say) -> None:
        """Measure.

        A server that dies under the load is no error here: the checks tell it from what was written until then.

        Raises:
            ActionFailed: no server runs, it does not answer the first request or stands still, or the load generator broke.
        """
        job = None if self.endpoint else self.jobs.get(NAME)
        if job is None and self.endpoint is None:
            raise ActionFailed(
                "no server of this workspace runs", "one that answers", "start it: runbook serve"
            )
        endpoint = self.endpoint or own(self.ctx.work, job)
        start = launched(self.ctx, endpoint, job)
        with contextlib.closing(Bench(self.ctx, endpoint, self.tokenizer)) as bench:
            # Imported before the canaries are asked: on two cores an import takes its time from whatever runs.
            import_s = bench.ready()
            before = canaries.alone(endpoint)
            if wrong := next((one for one in before.values() if one["error"]), None):
                raise self._refused(wrong, endpoint)
            together = canaries.together(endpoint, COPIES)
            say(f"canaries asked, alone and together; vllm bench serve imported in {import_s:.0f} s")
            watched = job.pid if job else None
            with Gauge(endpoint, server=watched, client=bench.pid, every_s=GAUGE_S) as gauge:
                loads = Loads(self, bench, endpoint, gauge, job, say)
                steps, features, pair = loads.all()
            after = canaries.alone(endpoint)
        self.facts = {
            "quick": self.asked.quick,
            "device": self.ctx.stack.device,
            "objectives": list(self.asked.words),
            "lengths": list(self.lengths),
            "canaries": {"before": before, "together": together, "after": after},
            "steps": [load.as_row(step) for step in steps],
            "features": [load.as_row(step) for step in features],
            "pair": [load.as_row(step) for step in pair],
            "generator": f"vllm bench serve of {self.ctx.stack.vllm}",
            "import_s": import_s,
        }
        # A short load is half ramp and drain: that fewer ran than were offered says nothing of it.
        offered = None if self.asked.quick else steps[-1].concurrency or None
        binding = limits.judge(start, loads.rows[-1], offered, loads.lower(steps))
        say(f"limit: {binding.name}: {binding.says}")
        found = knee.find(steps)
        for line in () if self.asked.quick else knee.table(steps, found):
            say(line)
        if job is not None:
            write_whole(self.chart, knee.svg(steps, found))
            measured.write(self.ctx.work, "load", job.marker, self.facts)
            measured.write(self.ctx.work, "limits", job.marker, limits.as_facts(binding))

    def _refused(self, answer: dict[str, Any], endpoint: Endpoint) -> ActionFailed:
        """Why there is nothing to load: what became of the first request."""
        reply = Reply(0.0, error=answer["error"], status=answer["status"])
        fault = looking.fault(reply, endpoint, None if self.endpoint else self.ctx.work)
        return fault.failed() if fault else ActionFailed(answer["error"], "an answer", "runbook status")

    def quick(self) -> Load:
        """The one load of page 09."""
        number = QUICK["cuda" if self.ctx.stack.device == "cuda" else "cpu"]
        return Load("quick", number, *self.lengths, concurrency=8 if number == QUICK["cpu"] else 32)

    def load(self, level: float, before: Step | None, seed: int) -> Load:
        """A load of about ``step_s``, guessed from the step before, and long enough for the percentiles asked for."""
        fewest = max(FEWEST, slo.needed(self.asked.objectives), 0 if self.asked.open_loop else int(4 * level))
        guess = level if self.asked.open_loop else before.rps * level / knee.level(before) if before else 0.0
        number = max(fewest, min(MOST, round(guess * self.asked.step_s)))
        name = "minimal" if before is None and level == 1 and not self.asked.open_loop else "parallel"
        one = Load(name, number, *self.lengths, seed=seed)
        return replace(one, rate=level) if self.asked.open_loop else replace(one, concurrency=int(level))


class Loads:
    """The loads of one validation, put one after another; ``rows`` are the readings of each of the rising ones."""

    def __init__(
        self, of: Validate, bench: Bench, endpoint: Endpoint, gauge: Gauge, job: Job | None, say: Say
    ) -> None:
        self.of = of
        self.bench = bench
        self.endpoint = endpoint
        self.gauge = gauge
        self.job = job
        self.say = say
        self.rows: list[list[Reading]] = []

    def all(self) -> tuple[list[Step], list[Step], list[Step]]:
        """The rising loads until the service bends or dies, the features at its knee, and both generators there."""
        asked = self.of.asked
        if asked.quick:
            return self._quick(), [], []
        steps: list[Step] = []
        for level in asked.levels or DOUBLING:
            steps.append(self.put(self.of.load(level, steps[-1] if steps else None, len(steps))))
            if self._dead() or (not asked.levels and knee.find(steps).at is not None):
                break
        if self._dead():
            return steps, [], []
        at = knee.find(steps).at
        worth = steps[at if at is not None else -1]
        same = self.of.load(knee.level(worth), worth, len(steps))
        rows = list(self.rows)
        features = [
            self.put(replace(same, name="logprobs", logprobs=1)),
            self.put(replace(same, name="chat", backend=CHAT, seed=same.seed + 1)),
        ]
        pair = []
        if asked.second:
            again = replace(same, name="vllm bench", seed=same.seed + 2)
            pair = [self.put(again), self.put(replace(again, name=asked.second), self._second)]
        self.rows = rows
        return steps, features, pair

    def _quick(self) -> list[Step]:
        """The short load, and longer ones until enough was read under one to name a limit: as long as the load before was quick."""
        one = self.of.quick()
        steps = [self.put(one)]
        while len(steps) < QUICK_TRIES and self._few() and not self._dead():
            number = max(one.number, min(MOST, round(steps[-1].rps * QUICK_S)))
            steps.append(self.put(replace(one, number=number, seed=one.seed + len(steps))))
        return steps

    def _few(self) -> bool:
        """Whether too little was read under the last load to name a limit."""
        return sum(1 for row in self.rows[-1] if row.running) < 2 * limits.FEWEST

    def _first(self, one: Load) -> Said:
        return self.bench.put(one, self._standstill)

    def _second(self, one: Load) -> Said:
        return aiperf.put(self.of.ctx, self.endpoint, self.of.tokenizer, one, self.say)

    def lower(self, steps: list[Step]) -> limits.Lower | None:
        """The load before the last, for whoever asks whether more brought more."""
        if self.of.asked.quick or self.of.asked.open_loop or len(steps) < 2:  # noqa: PLR2004 - a lower one and a higher one
            return None
        tps = limits.tps(self.rows[-2])
        return None if tps is None else limits.Lower(knee.level(steps[-2]), tps)

    def _dead(self) -> str:
        if self.job is None:
            return ""
        here = self.of.jobs.get(NAME)
        if here is not None and here.marker == self.job.marker:
            return ""
        self.of.jobs.join(self.job, LAST_WORDS_S)  # its keeper writes how it ended
        ended = self.of.jobs.ended(NAME)
        return f"the server died under the load: {ended.text() if ended else 'killed, its keeper too'}"

    def _standstill(self) -> str:
        """Why the load will not end; "" while it makes progress."""
        rows = list(self.gauge.rows)
        if not rows or rows[-1].at - rows[0].at < STANDSTILL_S:
            return ""
        late = [row for row in rows if row.at >= rows[-1].at - STANDSTILL_S]
        read = [row for row in late if not row.missed]
        if not read:
            return f"no answer from /metrics for {STANDSTILL_S:.0f} s: {late[-1].missed}"
        moved = {(row.prompt_tokens, row.generation_tokens) for row in read}
        stands = len(moved) == 1 and all(row.running for row in read)
        return f"requests ran for {STANDSTILL_S:.0f} s and no token came" if stands else ""

    def put(self, one: Load, by: Callable[[Load], Said] | None = None) -> Step:
        """The load, with the server's counters from just before it to when all of it is counted."""
        before = self.endpoint.metrics()
        said, ended = (by or self._first)(one), time.monotonic()
        after = _counted(self.endpoint, before, said)
        # The generator makes its prompts first; what was read meanwhile says nothing about the load.
        rows = [row for row in self.gauge.rows if ended - said.seconds <= row.at <= ended]
        self.rows.append(rows)
        seen = [row for row in rows if row.waiting is not None]
        window = None if after is None else load.window(before, after)
        if dead := self._dead():
            window = load.Window({}, {}, dead)
        step = Step(
            name=one.name,
            concurrency=one.concurrency,
            rate=one.rate,
            seconds=said.seconds,
            requests=said.requests,
            input_tokens=None if one.backend == CHAT else said.input_tokens,
            client_cores=said.cores,
            server=window,
            waiting=sum(1 for row in seen if row.waiting) / len(seen) if seen else None,
            running=statistics.median(row.running or 0.0 for row in seen) if seen else None,
            errors=dict(said.errors.most_common(5)),
        )
        self.say(f"{one.name:9} {knee.named(step):12} {step.rps:6.3g} req/s {step.tps:7.4g} tokens/s, e2e {load.median_ms(step, 'e2e')} ms")  # fmt: skip
        return step


def _counted(endpoint: Endpoint, before: Metrics, said: Said) -> Metrics | None:
    """The counters once they hold what the client was answered, or as they stand after some seconds; None when it is gone.

    The server counts a request a moment after its last chunk was sent.
    """
    good, deadline = sum(one.good for one in said.requests), time.monotonic() + SETTLE_S
    page = None
    while True:
        with contextlib.suppress(ActionFailed):
            page = endpoint.metrics()
            counted = load.window(before, page)
            if counted.anew or counted.finished >= good:
                return page
        if time.monotonic() > deadline:
            return page
        time.sleep(0.1)
