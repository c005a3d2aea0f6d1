"""``runbook triage``: from a wall of log to the one cause."""

import contextlib
import json
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from runbook.errors import BadParameter
from runbook.forms import Form


def triage(
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="Logs to read as one; - is standard input. Without any: the log of this workspace's server.",
            metavar="[FILE|-]...",
        ),
    ] = None,
    run: Annotated[
        Path | None, typer.Option("--run", metavar="DIR", help="A run folder: the logs kept in it.")
    ] = None,
    pid: Annotated[
        int | None,
        typer.Option("--pid", min=1, help="A running process: the file that its output goes to."),
    ] = None,
    machine: Annotated[
        str,
        typer.Option(
            "--machine",
            help="Whose checks confirm a cause: live, recorded:NAME or none; auto: live for --run, --pid and no file, else none.",
        ),
    ] = "auto",
    target: Annotated[
        str, typer.Option("--target", metavar="PYTHON", help="Interpreter whose environment the checks ask.")
    ] = "",
    stack: Annotated[str, typer.Option("--stack", help="Stack whose target the checks ask.")] = "auto",
    format_: Annotated[Form, typer.Option("--format", help="How it is printed.")] = Form.TEXT,
) -> None:
    """Name the cause of a failure from logs, with the line that is it. Exit code 0: healthy; 1: a cause is named; 3: no verdict."""
    from runbook import triage as reading
    from runbook import triaged
    from runbook.triage import judge

    if sum((bool(files), run is not None, pid is not None)) > 1:
        raise BadParameter("files, --run and --pid together", "one of them", "leave the others out")
    named = files or [str(path) for path in _logs(run, pid)]
    with contextlib.ExitStack() as opened:
        sources = [opened.enter_context(_source(name, alone=len(named) == 1)) for name in named]
        found = reading.read(sources)
    asked = ("none" if files else "live") if machine == "auto" else machine
    if found.causes and asked != "none":
        found = judge.confirmed(found, _readings(found, asked, stack, target))
    if format_ is Form.JSON:
        typer.echo(json.dumps(triaged.as_json(found), ensure_ascii=False, indent=1))
    else:
        typer.echo(triaged.as_text(found), nl=False)
    raise typer.Exit(triaged.EXIT[found.verdict])


@contextlib.contextmanager
def _source(name: str, *, alone: bool) -> Iterator[tuple[str, BinaryIO]]:
    from runbook import triage as reading

    if name == "-":
        yield "" if alone else "-", sys.stdin.buffer
        return
    with reading.opened(name) as stream:
        yield "" if alone else Path(name).name, stream


def _logs(run: Path | None, pid: int | None) -> list[Path]:
    """The logs of a run folder, of a process, or of this workspace's server."""
    from runbook.workspace import workspace

    if run is not None:
        found = sorted((run / "logs").glob("*.log"))
        if not found:
            raise BadParameter(
                f"no *.log in {run / 'logs'}", "a folder that runbook run left", "runbook run, or name a log"
            )
        return found
    if pid is not None:
        return [_output_of(pid)]
    log = workspace().jobs / "server.log"
    if not log.exists():
        raise BadParameter(
            f"{log} is not there: no server of this workspace was started",
            "a log",
            "name one: runbook triage FILE, or runbook triage - < FILE",
        )
    return [log]


def _output_of(pid: int) -> Path:
    """The regular file that standard error, else standard output, of a process goes to."""
    for descriptor in (2, 1):
        link = Path(f"/proc/{pid}/fd/{descriptor}")
        try:
            if stat.S_ISREG(link.stat().st_mode):
                return link
        except FileNotFoundError:
            continue
        except PermissionError as why:
            raise BadParameter(
                f"process {pid} is another user's", "a process whose output may be read", "run as its user"
            ) from why
    if not Path(f"/proc/{pid}").exists():
        raise BadParameter(f"there is no process {pid}", "a running process", "ps -ef | grep vllm")
    goes = Path(f"/proc/{pid}/fd/2").readlink()
    raise BadParameter(
        f"the output of process {pid} goes to {goes}, which cannot be read again",
        "a process that writes to a file",
        f"journalctl _PID={pid} | runbook triage -   (or docker logs, kubectl logs)",
    )


def _readings(found: Any, machine: str, stack: str, target: str) -> dict[str, list[Any]]:
    """What the checks of the first causes say of a machine."""
    from runbook import connect, engine
    from runbook.checks import ALL, BY_ID
    from runbook.model import Cost
    from runbook.triage.judge import Reading
    from runbook.workspace import workspace

    wanted = {one.key: one.signature.checks for one in found.causes[:3]}
    ids = dict.fromkeys(check for checks in wanted.values() for check in checks)
    chosen = [BY_ID[one] for one in ids if BY_ID[one].cost.within(Cost.INSIDE)]
    host = connect.cached(connect.probe(machine, stack, target, workspace()))
    findings = {one.id: one for one in engine.run(chosen, ALL, host)}
    return {
        key: [
            Reading(one.id, one.verdict, one.reason or one.title)
            for check in checks
            if (one := findings.get(check))
        ]
        for key, checks in wanted.items()
    }
