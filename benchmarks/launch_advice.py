"""What the articles' launch flags buy on a CPU stack: each against the stack's own command, in one run.

    python benchmarks/launch_advice.py --stack vllm-0.32.0-cpu            # every variant (some ten minutes)
    python benchmarks/launch_advice.py --stack vllm-0.19.1-cpu compiled stats
    python benchmarks/launch_advice.py --errors                           # what an argument error costs, both stacks
    python benchmarks/launch_advice.py --stack vllm-0.32.0-cpu --thinking # content and reasoning, by parser and template

Two servers are up at once, the stack's own and one with a single thing changed, and requests go to them in turn, so that
other load on the machine falls on both; a ratio is the median of those of one turn, changed over own, with its interval.
What is compared is processor time of the server's processes (on a CPU that is what tokens cost), which other load moves
much less than it moves the clock; time to ready is one start each, on the clock and in processor time. ``own`` compares
the stack's command with itself, which is the noise. The targets are those of ``$RUNBOOK_HOME``; what is written goes to a
folder of its own. Prints one JSON object; on standard error a line a variant.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from runbook import pins
from runbook.actions import Context
from runbook.actions.jobs import Jobs, Owner
from runbook.actions.launching import Launching
from runbook.actions.model_files import MakeModel
from runbook.actions.server import NAME, SERVED, StartServer, api_key
from runbook.endpoint import Endpoint
from runbook.errors import BadParameter
from runbook.probes.live import target_env
from runbook.serving import figures
from runbook.workspace import Workspace, workspace

STACKS = ("vllm-0.32.0-cpu", "vllm-0.19.1-cpu")
DEADLINE_S = 600
TURNS = 6
TOKENS = 64
AT_ONCE, SHORT = 48, 24
REPEATS, LONG = 12, 1200
COMPILE_OFF = "TORCH_COMPILE_DISABLE"


@dataclass(frozen=True)
class Variant:
    """One piece of advice: the words that follow it; ``compiled`` also takes the stack's variable against compiling away."""

    name: str
    words: tuple[str, ...]
    compiled: bool = False


VARIANTS = (
    Variant("own", ()),
    Variant("compiled", ("--no-enforce-eager",), compiled=True),
    Variant("stats", ("--disable-log-stats",)),
    Variant("requests", ("--enable-log-requests",)),
    Variant("prefix", ("--no-enable-prefix-caching",)),
    Variant("seqs-128", ("--max-num-seqs", "128")),
    Variant("seqs-512", ("--max-num-seqs", "512")),
)


# A parser alone, a parser with the default that it needs, and none; each with a template of either default.
OFF = '{"enable_thinking": false}'
PARSERS = (
    Variant("parser", ("--reasoning-parser", "qwen3", "--trust-request-chat-template")),
    Variant("parser and default", ("--reasoning-parser", "qwen3", "--default-chat-template-kwargs", OFF, "--trust-request-chat-template")),
    Variant("neither", ("--trust-request-chat-template",)),
)  # fmt: skip
THINKS = "enable_thinking is defined and not enable_thinking"
DOES_NOT = "not (enable_thinking is defined and enable_thinking)"


@dataclass(frozen=True)
class Up:
    """A server that is up."""

    endpoint: Endpoint
    ready_s: float
    ready_cpu_s: float
    pid: int
    log: Path


@contextmanager
def up(root: Path, stack: str, one: Variant) -> Iterator[Up]:
    """A server in a workspace of its own, with the targets of the one in force."""
    root.mkdir(exist_ok=True)
    targets = root / "targets"
    if not targets.exists():
        targets.symlink_to(workspace().targets)
    work, chosen = Workspace(root), pins.stack(stack)
    ctx = Context(
        work,
        chosen,
        work.target_python(stack),
        ours=True,
        model=chosen.model,
        owner=Owner.of(),
        deadline_s=DEADLINE_S,
    )
    MakeModel(ctx).apply(lambda _: None)
    start = StartServer(ctx, own=one.words)
    if one.compiled:
        planned = start.launch.planned
        kept = tuple(each for each in planned.variables if each.name != COMPILE_OFF)
        start.launch = dataclasses.replace(start.launch, planned=dataclasses.replace(planned, variables=kept))
    began = time.monotonic()
    try:
        start.apply(lambda _: None)
        ready = time.monotonic() - began
        job = Jobs(work.jobs).get(NAME)
        if job is None:
            raise RuntimeError("the server is gone")
        endpoint = Endpoint(f"http://127.0.0.1:{job.port}", SERVED, api_key(work.jobs))
        yield Up(endpoint, ready, cpu_s(job.pid), job.pid, Path(job.log))
    finally:
        Jobs(work.jobs).stop(NAME)


def asked(server: Up, prompt: list[int], tokens: int) -> Any:  # noqa: ANN401 - a Reply
    """One greedy answer of exactly so many tokens.

    Raises:
        RuntimeError: the request failed.
    """
    reply = server.endpoint.complete(prompt, tokens, temperature=0, extra_body={"ignore_eos": True})
    if reply.error or reply.completion_tokens != tokens:
        raise RuntimeError(f"{reply.error or reply.completion_tokens}")
    return reply


def prompt(number: int, length: int) -> list[int]:
    """Token ids that no other request has."""
    return [16 + (number * 131 + place * 7) % 400 for place in range(length)]


def cpu_s(pid: int) -> float:
    """Processor time of a process and all below it, those that are gone included where their parent waited for them."""
    own = psutil.Process(pid)
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return float(sum(sum(one[:4]) for one in times))


def alone(server: Up, turn: int) -> int:
    """Tokens of one answer."""
    return int(asked(server, prompt(500 + turn, 24), TOKENS).completion_tokens)


def together(server: Up, turn: int) -> int:
    """Tokens of AT_ONCE answers that were asked for at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        first = 1000 * (turn + 1)
        list(pool.map(lambda each: asked(server, prompt(first + each, 24), SHORT), range(AT_ONCE)))
    return AT_ONCE * SHORT


def again(server: Up, _: int) -> int:
    """A long prompt that was sent before, several times: the kernel counts processor time in hundredths of a second."""
    for _each in range(REPEATS):
        asked(server, prompt(99, LONG), 1)
    return REPEATS


def compared(own: Up, other: Up) -> dict[str, Any]:
    """Processor milliseconds a token (of ``again``: a prompt) of both, turn by turn, and their ratios."""
    pair = {"own": own, "changed": other}
    rows: dict[str, Any] = {}
    for name, work in (("alone", alone), ("together", together), ("again", again)):
        found: dict[str, list[float]] = {each: [] for each in pair}
        for turn in range(TURNS + 1):
            for each, server in _in_turn(pair, turn):
                before = cpu_s(server.pid)
                count = work(server, turn)
                if turn:  # what is paid once is not the question
                    found[each].append(1000 * (cpu_s(server.pid) - before) / count)
        both = zip(found["own"], found["changed"], strict=True)
        ratio = figures.median([late / early for early, late in both])
        rows[name] = {
            "own_ms": round(median(found["own"]), 3), "changed_ms": round(median(found["changed"]), 3),
            "ratio": round(ratio.value, 3),
            "interval": [None if end is None else round(end, 3) for end in (ratio.low, ratio.high)],
        }  # fmt: skip
    for name, server in pair.items():
        _, page = server.endpoint.get("/metrics", 60)
        rows[f"vllm_series_{name}"] = sum(line.startswith("vllm:") for line in page.splitlines())
        rows[f"log_bytes_{name}"] = server.log.stat().st_size
    return rows


def _in_turn(pair: dict[str, Up], turn: int) -> list[tuple[str, Up]]:
    """Own first, then changed first."""
    both = list(pair.items())
    return both if turn % 2 == 0 else both[::-1]


def thinking(root: Path, stack: str) -> list[dict[str, Any]]:
    """Where an answer stands, content or reasoning, whole and streamed, by parser, template and request."""
    rows = []
    for one in PARSERS:
        with up(root, stack, one) as server:
            model = root / "models" / pins.stack(stack).model
            template = (model / "chat_template.jinja").read_text(encoding="utf-8")
            for default in ("on", "off"):
                text = template if default == "on" else template.replace(THINKS, DOES_NOT)
                for asked_for in (None, True, False):
                    kwargs = {} if asked_for is None else {"chat_template_kwargs": {"enable_thinking": asked_for}}  # fmt: skip
                    more = {"chat_template": text, **kwargs}
                    rows.append({"flags": one.name, "template": default, "request": asked_for, "whole": _place(server, more, stream=False), "streamed": _place(server, more, stream=True)})  # fmt: skip
                    print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def _place(server: Up, more: dict[str, Any], *, stream: bool) -> str:
    """The fields that hold text."""
    asked_of = server.endpoint.client.chat.completions.create(
        model=SERVED, messages=[{"role": "user", "content": "Hello there"}], max_tokens=12, temperature=0,
        stream=stream, extra_body=more,
    )  # fmt: skip
    parts = [each.choices[0].delta for each in asked_of if each.choices] if stream else [asked_of.choices[0].message]  # fmt: skip
    names = ("content", "reasoning")
    return ", ".join(name for name in names if any(getattr(each, name, None) for each in parts)) or "nothing"


def errors(root: Path) -> dict[str, Any]:
    """Seconds until a refused command has ended, started bare, and until the plan refused the same."""
    rows = {}
    for stack in STACKS:
        root.mkdir(exist_ok=True)
        work, chosen = Workspace(root), pins.stack(stack)
        python = workspace().target_python(stack)
        ctx = Context(
            work, chosen, python, ours=True, model=chosen.model, owner=Owner.of(), deadline_s=DEADLINE_S
        )
        launching = Launching(ctx)
        words = launching.launch("baseline").argv(ctx, 0, "127.0.0.1")
        began = time.monotonic()
        ended = subprocess.run(
            [*words, "--num-scheduler-steps", "2"],
            env=target_env(work, stack, python),
            capture_output=True,
            text=True,
            check=False,
        )
        bare = time.monotonic() - began
        began = time.monotonic()
        try:
            launching.launch("baseline", ("--num-scheduler-steps", "2"))
        except BadParameter as why:
            said = why.seen
        rows[stack] = {"bare_s": round(bare, 2), "exit_code": ended.returncode, "vllm_says": ended.stderr.strip().splitlines()[-1:], "planned_s": round(time.monotonic() - began, 3), "we_say": said}  # fmt: skip
    return rows


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser()
    words.add_argument("--stack", default=STACKS[0], choices=STACKS)
    words.add_argument("--errors", action="store_true")
    words.add_argument("--thinking", action="store_true")
    words.add_argument("variant", nargs="*", metavar="VARIANT", help=", ".join(one.name for one in VARIANTS))
    given = words.parse_args()
    with tempfile.TemporaryDirectory(prefix="launch-advice-") as folder:
        root = Path(folder)
        answer: dict[str, Any] = {"load_at_start": os.getloadavg()[0], "cores": os.cpu_count()}
        if given.errors:
            answer["errors"] = errors(root / "errors")
        elif given.thinking:
            answer |= {"stack": given.stack, "thinking": thinking(root / "thinking", given.stack)}
        else:
            chosen = [one for one in VARIANTS if not given.variant or one.name in given.variant]
            answer |= {"stack": given.stack, "variants": {}}
            with up(root / "own", given.stack, VARIANTS[0]) as own:
                answer |= {"ready_s": round(own.ready_s, 1), "ready_cpu_s": round(own.ready_cpu_s, 1)}
                for one in chosen:
                    with up(root / f"with-{one.name}", given.stack, one) as other:
                        found = {
                            "words": one.words,
                            "ready_s": round(other.ready_s, 1),
                            "ready_cpu_s": round(other.ready_cpu_s, 1),
                            **compared(own, other),
                        }
                    answer["variants"][one.name] = found
                    print(one.name, json.dumps(found), file=sys.stderr, flush=True)
        print(json.dumps(answer, indent=1))


if __name__ == "__main__":
    main()
