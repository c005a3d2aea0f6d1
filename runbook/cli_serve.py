"""``runbook serve``: a server planned from model, memory and release, started in front or left running."""

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from runbook.errors import ActionFailed, BadParameter
from runbook.forms import Form

INIT = 1
LOOPBACK, EVERYWHERE = "127.0.0.1", "0.0.0.0"  # noqa: S104 - asked for by name, and said what it opens
HOSTS = {"localhost": LOOPBACK, LOOPBACK: LOOPBACK, EVERYWHERE: EVERYWHERE}
PORT = 8000
DEADLINE_S = 900
LOOK_S = 0.5
MOST = 1 << 16  # bytes of log shown at a look
DEV_MODE = "VLLM_SERVER_DEV_MODE"


def serve(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] [-- FLAGS...]",
            help="A generated model's name, a folder or a hub id, default the stack's; then flags of vLLM, which go before the plan's.",
        ),
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            "--profile", help="first-light, baseline, throughput, latency, rl-rollout or text-only."
        ),
    ] = "baseline",
    stack: Annotated[
        str, typer.Option("--stack", help="Name of a stack; auto takes the one that fits this machine.")
    ] = "auto",
    target: Annotated[
        str,
        typer.Option("--target", metavar="PYTHON", help="Interpreter to start; default: the stack's own."),
    ] = "",
    port: Annotated[
        int | None,
        typer.Option(
            "--port", min=0, max=65535, help=f"Port to listen on, default {PORT}; 0 takes a free one."
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", help="127.0.0.1, or 0.0.0.0 for every network of this machine.")
    ] = LOOPBACK,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print the command with its reasons and stop.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", help="Return when it is ready; runbook stop ends it.")
    ] = False,
    deadline_s: Annotated[
        int, typer.Option("--deadline-s", min=10, help="Seconds it may take to become ready.")
    ] = DEADLINE_S,
    format_: Annotated[
        Form, typer.Option("--format", help="How the plan, or the address, is printed.")
    ] = Form.TEXT,
) -> None:
    """Serve a model on vLLM's OpenAI API, on loopback and with a key; Ctrl-C stops it and all it started."""
    from runbook import workspace
    from runbook.actions.server import StartServer
    from runbook.serving import profiles

    if host not in HOSTS:
        raise BadParameter(
            f"--host {host}",
            f"{LOOPBACK}, or {EVERYWHERE}: the checks ask on loopback",
            "keep loopback and reach it through ssh -L or a proxy",
        )
    named, own = _split(words or [])
    work = workspace.workspace()
    ctx = _context(work, stack, target, named, deadline_s, detach=detach)
    start = StartServer(
        ctx,
        (),
        profiles.named(profile),
        own=own,
        port=(PORT if port is None else port) or None,
        host=HOSTS[host],
    )
    found = start.launch
    dev = [one for one in found.planned.variables if one.name == DEV_MODE]
    if dev and HOSTS[host] != LOOPBACK:
        raise BadParameter(
            f"--host {host} with the profile {profile}",
            f"loopback: {dev[0].why.partition(':')[0]} would be open to everybody",
            "leave --host out",
        )
    if plan:
        typer.echo(_planned(start, format_), nl=False)
        return
    _free_to_start(work, start, port)
    say = _to_stderr if format_ is Form.JSON else typer.echo
    for line in (*found.over, *found.planned.left):
        say(line)
    if HOSTS[host] != LOOPBACK:
        say(f"{host}: whoever reaches the port sees /metrics, /health and /version; /v1 asks for the key")
    _model_there(ctx, say)
    start.apply(say)
    typer.echo(_address(work, profile, format_), nl=False)
    if not detach:
        _in_front(work, start)


def _split(words: list[str]) -> tuple[str, tuple[str, ...]]:
    """The model, "" for the stack's, and the user's flags, those of a --config file in its place."""
    from runbook import flags as judging
    from runbook.parse.vllm_flags import Command

    named = words[0] if words and not words[0].startswith("-") else ""
    rest = words[1:] if named else words
    asked, said = judging.with_config(Command((), "module", tuple(rest)))
    if said:
        raise BadParameter(said[0], "a plain file of key: value lines", "give its flags after --")
    return named, asked.words


def _context(work: Any, stack: str, target: str, model: str, deadline_s: int, *, detach: bool) -> Any:
    """A detached server belongs to process 1, so it ends with the machine or the container, else with ``runbook stop``."""
    from runbook import connect, pins
    from runbook.actions import Context
    from runbook.actions.jobs import Owner
    from runbook.actions.model_files import folder_of_name

    chosen = pins.buildable(stack) if stack != "auto" else pins.stack(connect.probe("live", "auto", "", work).stack)  # fmt: skip
    python = connect.interpreter(target) if target else work.target_python(chosen.name)
    name = model or chosen.model
    folder_of_name(work, name)  # refuses a name that is none before anything is planned
    owner = Owner.of(INIT) if detach else Owner.of()
    return Context(work, chosen, python, not target, name, owner, deadline_s)


def _free_to_start(work: Any, start: Any, port: int | None) -> None:
    """What would end a start, or another server, is said before anything happens; ``port`` is the one that was named.

    Raises:
        BadParameter: there is no target.
        ActionFailed: a server of this workspace runs with other flags, or somebody has the port.
    """
    from runbook.actions import ports
    from runbook.actions.jobs import Jobs
    from runbook.actions.server import NAME

    ctx = start.ctx
    if not ctx.python.exists():
        raise BadParameter(
            f"no target environment for {ctx.stack.name}",
            "one that can serve",
            f"runbook env build --stack {ctx.stack.name}",
        )
    job = Jobs(work.jobs).get(NAME)
    if job is None:
        if start.port is not None:
            ports.demanded(start.port, start.host)
    elif job.fingerprint != start.fingerprint() or port not in (None, 0, job.port):
        raise ActionFailed(
            f"a server of this workspace runs already, as process {job.pid} on port {job.port}, with another port, other flags, packages or model",
            "none, or the very one that is asked for",
            "runbook stop, or another workspace: RUNBOOK_HOME=/some/folder",
        )


def _model_there(ctx: Any, say: Any) -> None:
    """Make a generated checkpoint that is not there; a model of the hub has to be fetched by name first.

    Raises:
        BadParameter: it is not here.
    """
    from runbook.actions.model_files import GENERATED, MakeModel, folder_of

    folder = folder_of(ctx)
    if (folder / "config.json").is_file():
        return
    if ctx.model not in GENERATED:
        raise BadParameter(f"{ctx.model} is not in {folder}", "a checkpoint that is here", f"runbook fetch {ctx.model}")  # fmt: skip
    MakeModel(ctx).apply(say)


def _planned(start: Any, form: Form) -> str:
    from runbook.actions.launching import Launching, shell
    from runbook.actions.server import NAME

    ctx, found = start.ctx, start.launch
    memory = Launching(ctx).remembered(found)
    key = ctx.work.jobs / f"{NAME}.key"
    if form is Form.JSON:
        rows = {
            "schema": "launch/1", "profile": found.planned.profile, "stack": ctx.stack.name, "model": ctx.model,
            "argv": found.argv(ctx, start.port or "PORT", start.host),
            "flags": [{"flag": one.flag, "value": one.value, "why": one.why} for one in found.planned.flags],
            "own": list(found.own),
            "variables": [{"name": one.name, "value": one.value, "why": one.why} for one in found.planned.variables],
            "replaced": list(found.over), "left_out": list(found.planned.left),
            "memory": memory, "judged_by": found.origin,
        }  # fmt: skip
        return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"
    from runbook.serving.profiles import WHAT

    lines = [f"profile {found.planned.profile}: {WHAT[found.planned.profile]}", *start.plan()[:-1]]
    lines += [f"yours   {each}" for each in found.over]
    lines += [f"note    {each}" for each in found.planned.left]
    lines += [f"memory  {memory}", f"parser  takes all of it, by {found.origin}"] if found.judged else [f"memory  {memory}"]  # fmt: skip
    lines += ["", "the same in a shell, once the key is there (the first start makes it):"]
    lines += [shell(ctx, found, start.port or PORT, start.host, key)]
    return "\n".join(lines) + "\n"


def _address(work: Any, profile: str, form: Form) -> str:
    from runbook.actions.jobs import Jobs
    from runbook.actions.server import NAME, SERVED

    job = Jobs(work.jobs).get(NAME)
    if job is None:
        raise ActionFailed("the server is gone again", "one that stays", f"read {work.jobs / f'{NAME}.log'}")
    key = work.jobs / f"{NAME}.key"
    url = f"http://{LOOPBACK}:{job.port}/v1"
    if form is Form.JSON:
        rows = {"schema": "served/1", "url": url, "model": SERVED, "key_file": str(key), "pid": job.pid, "port": job.port, "log": job.log, "profile": profile}  # fmt: skip
        return json.dumps(rows, ensure_ascii=False) + "\n"
    body = json.dumps({"model": SERVED, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 16})
    return (
        f"address {url}\nmodel   {SERVED}\nkey     in {key}\n"
        f"ask     curl -s {url}/chat/completions -H 'Content-Type: application/json' "
        f"-H \"Authorization: Bearer $(cat '{key}')\" -d '{body}'\n"
        "next    runbook warm-up; runbook status; runbook stop\n"
    )


def _in_front(work: Any, start: Any) -> None:
    """Show the log until the server ends or Ctrl-C comes; a server that was there before is left to run.

    Raises:
        ActionFailed: it ended by itself.
    """
    from runbook.actions.jobs import Jobs
    from runbook.actions.server import NAME, StopServer

    jobs = Jobs(work.jobs)
    job = jobs.get(NAME)
    if job is None or job.owner != start.ctx.owner.text():
        typer.echo("it was started elsewhere and goes on; runbook stop ends it")
        return
    log = Path(job.log)
    try:
        with log.open("rb") as lines:
            lines.seek(0, os.SEEK_END)
            while not jobs.join(job, LOOK_S):
                _show_new(lines)
            _show_new(lines)
    except KeyboardInterrupt:
        began = time.monotonic()
        StopServer(start.ctx).apply(lambda _: None)
        typer.echo(f"\nstopped in {time.monotonic() - began:.1f} s; nothing of it is left")
        raise
    ended = jobs.ended(NAME)
    how = ended.text() if ended is not None and ended.marker == job.marker else "killed, its keeper too"
    if ended is None or ended.reason != "stopped":
        raise ActionFailed(f"the server ended: {how}", "one that stays until it is stopped", f"read {log}")
    typer.echo(f"the server was {how}")


def _show_new(log: BinaryIO) -> None:
    """What came since the last look; of a flood its end. The keeper cuts a log that grows too long, then we go on behind."""
    size, at = os.fstat(log.fileno()).st_size, log.tell()
    if size - at > MOST or size < at:
        typer.echo(f"... {'log cut' if size < at else f'{size - at - MOST} bytes not shown'} ...")
        log.seek(max(0, size - MOST) if size > at else size)
    typer.echo(log.read(MOST).decode("utf-8", "replace"), nl=False)


def _to_stderr(line: str) -> None:
    typer.echo(line, err=True)
