"""The main job: walk the pages of one or two stacks in order, headless, and leave a run folder that can be resumed.

Run folder: ``run.json`` (what was asked), ``events.jsonl`` (the journal), ``notebooks/`` (executed), ``findings/`` and
``findings.json``, ``junit.xml``, ``report.html``, ``logs/``, ``snapshots/`` (what ``env diff`` compares). A page counts as done when its journal says so *and* the
fingerprint of what it rested on (driver, packages, flags, checkpoint) is still the same.
"""

import datetime
import fcntl
import hashlib
import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook import __version__, connect, errors, notebooks, operands, page, params, pins, report
from runbook.actions import Context
from runbook.actions.jobs import Jobs, Owner
from runbook.actions.model_files import folder_of
from runbook.actions.server import fingerprint
from runbook.checks import ALL
from runbook.errors import BadParameter, RunbookError
from runbook.journal import Journal, events
from runbook.model import Check, Layer, Verdict
from runbook.params import PAGES, PageSpec
from runbook.workspace import Workspace, write_whole

RUN_SCHEMA = "run/1"
# A second stack on the same machine asks nothing new of host, CUDA, torch and flash-attn.
# Parameters of pages that the walk itself sets, and what sets them.
OPTION_OF = {
    "machine": "use --machine",
    "stack": "use --stack",
    "target": "use --target",
    "out_dir": "use --out",
    "keep_server": "page 08 keeps its server for page 09, and every walk stops it at the end",
}
SECOND_STACK_PAGES = ("03_python", "06_vllm", "07_model", "08_warmup", "09_serving")
INTERRUPTED = 130
EXIT_BY_STATE = {"done": 0, "not ready": 1, "action failed": 1, "bad parameter": 2, "no verdict": 3, "died": 3, "timed out": 3, "our bug": 4, "interrupted": INTERRUPTED}  # fmt: skip
WORST_FIRST = (INTERRUPTED, 4, 2, 1, 3, 0)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """One page on one stack."""

    spec: PageSpec
    stack: str

    @property
    def key(self) -> str:
        """``04_torch@vllm-0.32.0-cpu``; names its files."""
        return f"{self.spec.name}@{self.stack}"

    def expected(self) -> list[Check]:
        """The checks whose findings the page must make."""
        return [one for one in ALL if one.layer in self.spec.layers]


@dataclass(frozen=True)
class Walk:
    """What was asked for, checked: steps in order and the parameters of each page."""

    steps: tuple[Step, ...]
    machine: str
    target: str
    given: Mapping[str, str]

    def parameters(self, step: Step, out: Path, *, keep_server: bool) -> dict[str, Any]:
        """The parameters of one page: the walk's own, then the user's."""
        names = params.names(step.spec)
        own = {
            "machine": self.machine,
            "stack": step.stack,
            "target": self.target,
            "out_dir": str(out),
            "apply": True,
            "keep_server": keep_server,
        }
        values = {name: value for name, value in own.items() if name in names}
        return {**values, **params.from_words(step.spec, self.given)}


def plan(
    names: Sequence[str], machine: str, stack: str, target: str, given: Mapping[str, str], work: Workspace
) -> Walk:
    """Steps and parameters, all checked before anything starts.

    Raises:
        BadParameter: a page, stack, machine, target or parameter that does not exist or does not fit.
    """
    machine = connect.machine_in_force(machine)
    probe = connect.probe(machine, stack, target, work)
    chosen = [params.page_spec(name) for name in names] if names else list(PAGES)
    stacks = (probe.stack,) if stack != "auto" or target or names else pins.stacks_for(probe)
    steps = [Step(spec, stacks[0]) for spec in PAGES if spec in chosen]
    steps += [Step(params.page_spec(name), other) for other in stacks[1:] for name in SECOND_STACK_PAGES]
    if taken := sorted(set(given) & set(OPTION_OF)):
        raise BadParameter(
            f"-p {taken[0]} is no parameter of a walk", "the walk sets it for every page", OPTION_OF[taken[0]]
        )
    for name in given:
        if not any(name in params.names(step.spec) for step in steps):
            known = sorted({each for step in steps for each in params.names(step.spec)})
            raise BadParameter(
                f"none of the pages has a parameter {name!r}", ", ".join(known), "check the spelling"
            )
    given = dict(given)
    if given.get("model", "").startswith((".", "~")):
        # Pages run in the run folder; a path is meant from here.
        given["model"] = str(Path(given["model"]).expanduser().absolute())
    walk = Walk(tuple(steps), machine, str(Path(target).expanduser().absolute()) if target else "", given)
    for step in steps:
        params.validated(step.spec, walk.parameters(step, Path("/"), keep_server=False))
    if machine == "live" and "model" in given:
        folder_of(_context(walk, steps[0], work))
    return walk


def new_folder(work: Workspace) -> Path:
    """A run folder of its own, named by local time."""
    return work.runs / datetime.datetime.now().astimezone().strftime("%Y-%m-%dT%H.%M.%S")


def latest(work: Workspace) -> Path:
    """The run folder of this workspace that was begun last.

    Raises:
        BadParameter: there is none.
    """
    runs = sorted(path.parent for path in work.runs.glob("*/run.json"))
    if not runs:
        raise BadParameter(
            f"nothing to resume: no run folder under {work.runs}",
            "a run that was begun",
            "runbook run, or --out with the folder of a run",
        )
    return runs[-1]


def begin(walk: Walk, out: Path, *, resume: bool) -> Walk:
    """Write ``run.json``, or when resuming read it and take the walk it describes.

    Raises:
        BadParameter: the folder holds another run, or none to resume.
    """
    path = out / "run.json"
    if resume:
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            steps = tuple(Step(params.page_spec(one["page"]), one["stack"]) for one in kept["steps"])
            return Walk(steps, kept["machine"], kept["target"], kept["parameters"])
        except (OSError, ValueError, KeyError, TypeError) as why:
            raise BadParameter(
                f"{out} holds no run that can be resumed ({type(why).__name__})",
                "a folder with a run.json",
                "start one with runbook run --out",
            ) from why
    if path.exists():
        raise BadParameter(
            f"{out} already holds a run",
            "a new folder, or --resume to go on with it",
            "runbook run --resume --out " + str(out),
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as why:
        raise BadParameter(
            f"--out {out} cannot be a run folder: {why.strerror}",
            "a folder that may be written to",
            "choose another --out",
        ) from why
    steps_json = [{"page": step.spec.name, "stack": step.stack} for step in walk.steps]
    text = {
        "schema": RUN_SCHEMA,
        "runbook": __version__,
        "begun": _now(),
        "machine": walk.machine,
        "target": walk.target,
        "parameters": dict(walk.given),
        "steps": steps_json,
    }
    write_whole(path, json.dumps(text, indent=1) + "\n")
    return walk


def carry_out(
    walk: Walk,
    out: Path,
    work: Workspace,
    say: Say,
    progress: Callable[[Step, str], None],
    *,
    keep_going: bool,
    resume: bool,
) -> int:
    """Execute the steps, write the reports, stop every process; the exit code of the whole."""
    states: dict[str, str] = {}
    begun: list[str] = []
    journal = Journal(out / "events.jsonl")
    for folder in ("notebooks", "findings", "logs"):
        (out / folder).mkdir(exist_ok=True)
    with _one_at_a_time(work), _owned(), _terminated_like_interrupt():
        try:
            Jobs(work.jobs).stop_all()
            before = _done(out) if resume else {}
            for index, step in enumerate(walk.steps):
                if before.get(step.key) == rests_on(walk, step, work):
                    states[step.key] = "done"
                    progress(step, "done before, nothing it rests on has changed")
                    continue
                progress(step, "")
                keep = step.spec.name == "08_warmup" and walk.steps[index + 1 : index + 2] == (
                    Step(params.page_spec("09_serving"), step.stack),
                )
                begun.append(step.stack)
                states[step.key] = _run_step(walk, step, out, work, journal, say, keep_server=keep)
                progress(step, states[step.key])
                if states[step.key] != "done" and not keep_going:
                    break
            _leave_snapshots(walk, list(dict.fromkeys(begun)), out, work, say)
        except KeyboardInterrupt:
            say("interrupted: stopping what was started")
            states["walk"] = "interrupted"
        finally:
            with _uninterrupted():
                Jobs(work.jobs).stop_all()
                code = _write_reports(walk, out, states)
    return code


def _leave_snapshots(walk: Walk, stacks: Sequence[str], out: Path, work: Workspace, say: Say) -> None:
    """What ``runbook env diff`` compares when it worked yesterday; a failed run is what it is for, so it is left then too."""
    try:
        operands.leave(out, walk.machine, stacks, walk.target, work)
    except RunbookError as why:
        say(f"no snapshot is left: {why}")


def rests_on(walk: Walk, step: Step, work: Workspace) -> dict[str, str]:
    """Fingerprint of what a step's findings rest on, as short texts; equal means that it need not be run again."""
    if walk.machine != "live":
        return {"machine": walk.machine, "runbook": __version__}
    driver = [
        Path(path).read_text(encoding="utf-8")
        for path in ("/proc/version", "/proc/driver/nvidia/version")
        if Path(path).exists()
    ]
    found = {"runbook": __version__, "driver": hashlib.sha256("".join(driver).encode()).hexdigest()[:16]}
    above = set(Layer) - {Layer.START, Layer.HOST, Layer.DRIVER, Layer.CUDA}
    if set(step.spec.layers) & above:
        found |= fingerprint(_context(walk, step, work))
        if not set(step.spec.layers) & {Layer.MODEL, Layer.WARM, Layer.SERVE, Layer.TRIAGE}:
            del found["model"]
    return found


def _context(walk: Walk, step: Step, work: Workspace) -> Context:
    """What an action of this step's page would work on."""
    stack = pins.stack(step.stack)
    python = connect.interpreter(walk.target) if walk.target else work.target_python(step.stack)
    model = walk.given.get("model", "auto")
    return Context(
        work, stack, python, not walk.target, stack.model if model == "auto" else model, Owner.of(), 0
    )


def _done(out: Path) -> dict[str, dict[str, str]]:
    """Step key -> fingerprint of the steps that the journal says were done, and whose findings are there."""
    done: dict[str, dict[str, str]] = {}
    for row in events(out / "events.jsonl"):
        if row["event"] == "page-end":
            key = f"{row['page']}@{row['stack']}"
            done.pop(key, None)
            if row["state"] == "done" and (out / "findings" / f"{key}.json").exists():
                done[key] = row["rests_on"]
    return done


def _run_step(
    walk: Walk, step: Step, out: Path, work: Workspace, journal: Journal, say: Say, *, keep_server: bool
) -> str:
    # Late: they take seconds to import, and a refused or planned run needs neither.
    from nbclient.exceptions import CellTimeoutError, DeadKernelError  # noqa: PLC0415
    from papermill.exceptions import PapermillExecutionError  # noqa: PLC0415
    from papermill.execute import execute_notebook  # noqa: PLC0415

    where = {"page": step.spec.name, "stack": step.stack}
    (out / "findings" / f"{step.key}.json").unlink(missing_ok=True)
    journal.write("page-start", **where)
    started = time.monotonic()
    said = ""
    try:
        execute_notebook(
            notebooks.folder() / f"{step.spec.name}.ipynb",
            out / "notebooks" / f"{step.key}.ipynb",
            walk.parameters(step, out, keep_server=keep_server),
            engine_name="runbook",
            progress_bar=False,
            kernel_name="python3",
            cwd=str(out),
            execution_timeout=step.spec.cell_deadline_s,
            journal=journal,
            where=where,
            said=lambda line: (
                say(f"        {line.removeprefix(page.DOING)}") if line.startswith(page.DOING) else None
            ),
        )
        state = "done"
    except PapermillExecutionError as why:
        state, said = _state_of(why.ename), f"{why.ename}: {why.evalue}"
    except DeadKernelError as why:
        state, said = "died", str(why)
    except CellTimeoutError:
        state, said = "timed out", f"a cell ran longer than {step.spec.cell_deadline_s} s"
    except KeyboardInterrupt:
        journal.write(
            "page-end",
            **where,
            state="interrupted",
            duration_s=round(time.monotonic() - started, 3),
            said="",
            rests_on={},
        )
        raise
    # The logs that this page wrote, so that the run folder explains itself when the workspace has gone on.
    written = {
        "03_python": work.logs / f"build-{step.stack}.log",
        "08_warmup": work.jobs / "server.log",
        "09_serving": work.jobs / "server.log",
    }
    log = written.get(step.spec.name)
    if log is not None and log.exists():
        shutil.copyfile(log, out / "logs" / f"{step.key}.log")
    rests = rests_on(walk, step, work) if state == "done" else {}
    journal.write(
        "page-end",
        **where,
        state=state,
        duration_s=round(time.monotonic() - started, 3),
        said=said,
        rests_on=rests,
    )
    return state


def _state_of(name: str) -> str:
    """What an exception that left a page means for the walk."""
    if name == "LayerNotReady":
        return "not ready"
    kind = getattr(errors, name, None)
    if kind is None or not issubclass(kind, errors.RunbookError):
        return "our bug"
    return {1: "action failed", 2: "bad parameter"}.get(kind.exit_code, "no verdict")


def _write_reports(walk: Walk, out: Path, states: Mapping[str, str]) -> int:
    """findings.json with a row for every expected finding, junit.xml and report.html; the exit code."""
    seconds = {
        f"{row['page']}@{row['stack']}": row["duration_s"]
        for row in events(out / "events.jsonl")
        if row["event"] == "page-end"
    }
    pages: list[dict[str, Any]] = []
    for step in walk.steps:
        path = out / "findings" / f"{step.key}.json"
        have = (
            {row["id"]: row for row in json.loads(path.read_text(encoding="utf-8"))} if path.exists() else {}
        )
        state = states.get(step.key, "not run")
        why = f"the page {step.spec.name} {_not_run_because(state)}"
        rows = [have.get(check.id) or report.not_run(check, step.stack, why) for check in step.expected()]
        pages.append(
            {
                "page": step.spec.name,
                "stack": step.stack,
                "state": state,
                "seconds": seconds.get(step.key),
                "rows": rows,
            }
        )
    rows = [row for each in pages for row in each["rows"]]
    write_whole(out / "findings.json", json.dumps(rows, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    write_whole(out / "junit.xml", report.junit_text(rows))
    codes = {EXIT_BY_STATE[state] for state in states.values()}
    codes |= {{"fail": 1, "unknown": 3}.get(row["verdict"], 0) for row in rows}
    code = next(code for code in WORST_FIRST if code in codes | {0})
    run = json.loads((out / "run.json").read_text(encoding="utf-8"))
    write_whole(out / "report.html", report.html_text(pages, run, code))
    return code


def _not_run_because(state: str) -> str:
    return {"not run": "was not reached", "done": "left no such finding"}.get(
        state, f"ended before it ({state})"
    )


@contextmanager
def _one_at_a_time(work: Workspace) -> Iterator[None]:
    work.root.mkdir(parents=True, exist_ok=True)
    with (work.root / "walk.lock").open("a+", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as why:
            lock.seek(0)
            raise BadParameter(
                f"another run is at work in {work.root} (process {lock.read().strip() or '?'})",
                "one run at a time in a workspace",
                "wait for it, or set RUNBOOK_HOME to another folder",
            ) from why
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


@contextmanager
def _owned() -> Iterator[None]:
    """Jobs that pages start belong to this process, not to the page's kernel, and end with it however it ends."""
    os.environ[page.OWNER_VARIABLE] = Owner.of().text()
    try:
        yield
    finally:
        del os.environ[page.OWNER_VARIABLE]


@contextmanager
def _terminated_like_interrupt() -> Iterator[None]:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """A second Ctrl-C must not keep the server alive or the reports unwritten."""
    before = {each: signal.signal(each, signal.SIG_IGN) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def told(step: Step, state: str, number: int, total: int, out: Path) -> list[str]:
    """The lines a person reads when a step has ended: how, and what is not ok."""
    path = out / "findings" / f"{step.key}.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    counts = Counter(row["verdict"] for row in rows)
    words = ", ".join(
        f"{counts[verdict.value]} {verdict.value}" for verdict in Verdict if counts[verdict.value]
    )
    lines = [
        f"[{number:2}/{total}] {step.spec.name:13} {step.stack:18} {state}" + (f": {words}" if words else "")
    ]
    lines += [
        f"        {row['verdict'].upper():7} {row['id']}  {row['title']}"
        for row in rows
        if row["verdict"] in ("fail", "unknown", "warn")
    ]
    ends = [
        row
        for row in events(out / "events.jsonl")
        if row["event"] == "page-end" and (row["page"], row["stack"]) == (step.spec.name, step.stack)
    ]
    if ends and state == ends[-1]["state"] and state not in ("done", "not ready"):
        lines += [f"        {line.strip()}" for line in ends[-1]["said"].splitlines()]
    return lines


def described(walk: Walk) -> list[str]:
    """The steps as ``--plan`` prints them."""
    lines = [f"machine {walk.machine}"]
    for index, step in enumerate(walk.steps, 1):
        lines.append(
            f"{index:3}  {step.spec.name:14} {step.stack:20} {len(step.expected())} findings expected"
        )
    return lines
