"""``runbook status``: which state this workspace's server and other jobs are in, from evidence, and the next step."""

import dataclasses
import datetime
import json
import threading
from typing import Annotated, Any

import typer

from runbook.forms import Form

EVERY_S = 2.0


def status(
    window: Annotated[
        float,
        typer.Option(
            "--window", min=0.5, max=3600, metavar="SECONDS", help="How long progress is waited for."
        ),
    ] = 10.0,
    watch: Annotated[
        bool, typer.Option("--watch", help="Say so whenever something changes, until the server has ended.")
    ] = False,
    format_: Annotated[Form, typer.Option("--format", help="How it is printed.")] = Form.TEXT,
) -> None:
    """Say whether this workspace's server starts, waits, works, is stuck or dead, and why. Exit code 0: it serves; 1: stuck or dead; 3: neither."""
    from runbook.actions import looking
    from runbook.serving import state
    from runbook.workspace import workspace

    work = workspace()
    if watch:
        code = _watched(work, window, format_)
        raise typer.Exit(code)
    every = [looking.look(work, name, window) for name in looking.names(work)]
    if format_ is Form.JSON:
        rows = [_row(one) for one in every]
        typer.echo(json.dumps({"workspace": str(work.root), "jobs": rows}, ensure_ascii=False, indent=1))
    else:
        typer.echo("\n".join(line for one in every for line in described(one)))
    raise typer.Exit(state.EXIT[state.judge(every[0]).name])


def _watched(work: Any, window: float, form: Form) -> int:
    """Look every two seconds and print what is new; the exit code of the server's last state."""
    from runbook.actions import looking
    from runbook.serving import state

    told = ""
    pause = threading.Event()  # waits without deafness to Ctrl-C
    while True:
        seen = looking.look(work, window_s=window)
        found = state.judge(seen)
        line = f"{found.name}  {found.why}"
        if line != told:
            told = line
            now = datetime.datetime.now().astimezone().strftime("%H:%M:%S")
            typer.echo(json.dumps(_row(seen), ensure_ascii=False) if form is Form.JSON else f"{now}  {line}")
        if found.name in (state.NONE, state.DEAD, state.STOPPED):
            return state.EXIT[found.name]
        pause.wait(EVERY_S)


def _row(seen: Any) -> dict[str, Any]:
    from runbook.serving import state

    found = state.judge(seen)
    return {"state": found.name, "why": found.why, "do": found.do, **dataclasses.asdict(seen)}


def described(seen: Any) -> list[str]:
    """The lines of one job."""
    from runbook.serving import state

    found = state.judge(seen)
    rows = [("why", found.why)]
    if seen.alive:
        began = datetime.datetime.fromtimestamp(seen.began or 0).astimezone()
        rows.append(("since", f"{began.isoformat(sep=' ', timespec='seconds')} ({_span(seen.up_s or 0)})"))
        if seen.port is not None:
            rows.append(("address", f"http://127.0.0.1:{seen.port}/v1"))
        if seen.stack:
            rows.append(("serves", f"{seen.model or 'its model'}, from {seen.stack}"))
        if seen.key:
            rows.append(("key", f"in {seen.key}"))
        rows.append(("processes", f"{seen.processes}, {seen.rss >> 20} MiB, {seen.cores:.1f} cores"))
    elif seen.root and seen.root not in found.why:
        rows.append(("root line", seen.root))
    if seen.log_bytes or seen.alive:
        dropped = f", {seen.log_dropped >> 20} MiB of it dropped" if seen.log_dropped else ""
        free = "" if seen.disk_free is None else f"; {seen.disk_free >> 20} MiB free there"
        rows.append(("log", f"{seen.log} ({seen.log_bytes >> 10} KiB{dropped}{free})"))
    rows.append(("next", found.do))
    return [f"{seen.name}  {found.name}", *(f"  {name:10} {text}" for name, text in rows)]


def _span(seconds: float) -> str:
    """A time in words a person reads: 42 s, 3 min 20 s, 5 h 12 min, 3 d 4 h."""
    whole = int(seconds)
    for size, unit, small, below in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // small} {below}"
    return f"{whole} s"
