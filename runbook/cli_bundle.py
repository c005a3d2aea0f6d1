"""``runbook bundle``: what a bug report needs, in one file, after a look at what would leave the machine."""

import contextlib
import datetime
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from runbook.errors import ActionFailed, BadParameter
from runbook.forms import Form


def bundle(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Logs to put in. Without any: those of the run folder and of this workspace's server.",
            metavar="[FILE]...",
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            "--run",
            metavar="DIR",
            help="Run folder whose findings go in; default: the newest of this workspace, else checks made now.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", help="The archive; default: runbook-bundle-TIME.tar.gz here."),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Write it; otherwise only what would go in is shown.")
    ] = False,
    verify: Annotated[
        Path | None,
        typer.Option("--verify", metavar="FILE", help="Compare a bundle with its manifest, and stop."),
    ] = None,
    target: Annotated[
        str, typer.Option("--target", metavar="PYTHON", help="Interpreter of the environment to report.")
    ] = "",
    stack: Annotated[str, typer.Option("--stack", help="Stack whose environment is reported.")] = "auto",
    machine: Annotated[
        str, typer.Option("--machine", help="live, or recorded:NAME; then nothing of this machine goes in.")
    ] = "auto",
    format_: Annotated[Form, typer.Option("--format", help="How it is printed.")] = Form.TEXT,
) -> None:
    """Show what a bug report would tell of this machine, redacted; with --yes write it: HTML, JSON, JUnit, logs, a text for vLLM's form, hashes."""
    if verify is not None:
        _verified(verify, format_)
        return
    from runbook import __version__, redact
    from runbook import bundle as bundling
    from runbook.tarball import packed, sha256
    from runbook.workspace import workspace

    work = workspace()
    live = _live(machine)
    folder = _run_folder(run, work, live)
    place = (out or Path(f"runbook-bundle-{folder.name if folder else _now('%Y-%m-%dT%H.%M.%S')}.tar.gz")).absolute()  # fmt: skip
    _writable(place)
    paths = list(files or (_logs(folder, work) if live else []))
    found = gathered(paths, folder, machine, stack, target, work)
    items = bundling.made(found, redact.numbered(os.environ, _keys(work)), __version__)
    archive = packed({item.name: item.content for item in items})
    if yes:
        _write(place, archive)
    if format_ is Form.JSON:
        told = {"schema": bundling.SCHEMA, "written": str(place) if yes else None, "sha256": sha256(archive), "size": len(archive), "files": bundling.as_json(items)}  # fmt: skip
        typer.echo(json.dumps(told, ensure_ascii=False, indent=1))
        return
    typer.echo("What goes in:" if yes else "What would go in (nothing is written yet, and nothing is sent):")
    typer.echo(bundling.preview(items))
    if yes:
        typer.echo(f"\nwritten   {place} ({bundling.amount(len(archive))}, for you alone to read)")
        typer.echo(f"sha256    {sha256(archive)}")
        typer.echo("next      read bundle.html in it; paste issue.md into the issue and attach the archive")
    else:
        typer.echo(f"\ndo: the same command with --yes writes {place.name}; a name or an address that is still there: report it, or leave the file out")  # fmt: skip


def gathered(
    paths: Sequence[Path],
    folder: Path | None,
    machine: str,
    stack: str,
    target: str,
    work: Any,
) -> Any:
    """Everything that goes in, not yet redacted. ``folder`` is a run folder; without one the static checks are made now.

    Raises:
        BadParameter: a log or the run folder cannot be read.
    """
    from runbook import bundle as bundling
    from runbook import collect, connect, engine, journal, report
    from runbook.checks import ALL
    from runbook.model import Cost

    host, chosen = reported(machine, stack, target, work)
    cached = connect.cached(host)
    if folder:
        rows, about = _read_json(folder / "findings.json", list), _read_json(folder / "run.json", dict)
        source, ended = f"the run {folder.name}", journal.events(folder / "events.jsonl")
    else:
        findings = engine.run(engine.select(ALL, [], Cost.STATIC), ALL, cached)
        rows, ended = [report.as_json(one) for one in findings], []
        source, about = "static checks", {"begun": _now("%Y-%m-%dT%H:%M:%S%z"), "machine": host.machine}
    logs: list[Any] = []
    for path in paths:
        one = _log(path)
        if all(one.text != other.text for other in logs):
            logs.append(one)
    return bundling.Gathered(
        rows=rows,
        source=source,
        run=about,
        ended=ended,
        environment=collect.report(cached, chosen, redact=str),
        chosen=chosen,
        logs=logs,
        triage=_triage(paths) if paths else None,
    )


def _triage(paths: Sequence[Path]) -> dict[str, Any]:
    from runbook import triage, triaged

    with contextlib.ExitStack() as opened:
        sources = [(path.name, opened.enter_context(triage.opened(str(path)))) for path in paths]
        return triaged.as_json(triage.read(sources))


def reported(machine: str, stack: str, target: str, work: Any) -> tuple[Any, str]:
    """The host whose environment a report is of, and how that was found: named, a stack's, else the first on PATH."""
    from runbook import collect, connect, pins

    host = connect.probe(machine, stack, target, work)
    if host.has_target:
        return host, "named by --target" if target else f"target of the stack {host.stack}"
    if stack != "auto":
        return host, f"the target of the stack {host.stack} is not built"
    others = [connect.probe(machine, name, "", work) for name in pins.stacks_for(host)]
    host = next((one for one in others if one.has_target), host)
    found = collect.first_on_path(os.environ.get("PATH", ""), sys.prefix) if _live(machine) else ""
    if found and not host.has_target:
        host = connect.probe(machine, stack, found, work)
        return host, "first on PATH; no target of a stack is built; --target names another"
    return host, f"target of the stack {host.stack}"


def _live(machine: str) -> bool:
    from runbook import connect

    return connect.machine_in_force(machine) == "live"


def _now(form: str) -> str:
    return datetime.datetime.now().astimezone().strftime(form)


def _run_folder(run: Path | None, work: Any, live: bool) -> Path | None:
    if run is not None:
        if not (run / "findings.json").is_file():
            raise BadParameter(
                f"--run {run}: there is no findings.json in it", "a folder that runbook run left", f"ls {work.runs}"
            )  # fmt: skip
        return run.absolute()
    found = sorted(path.parent for path in work.runs.glob("*/findings.json")) if live else []
    return found[-1] if found else None


def _logs(folder: Path | None, work: Any) -> list[Path]:
    """The logs of a run, and of this workspace's server, in which a later failure would be."""
    kept = sorted((folder / "logs").glob("*.log")) if folder else []
    return [*kept, *(path for path in (work.jobs / "server.log",) if path.exists())]


def _log(path: Path) -> Any:
    """The beginning and end of a file. A pipe could be read once only, and a triage reads it too."""
    from runbook import bundle as bundling

    expected, do = "a log that can be read", "name another file, or write what comes from a pipe into one"
    try:
        if not path.is_file():
            raise BadParameter(f"{path} is {'no file' if path.exists() else 'not there'}", expected, do)
        with path.open("rb") as stream:
            return bundling.excerpt(stream, str(path))
    except OSError as why:
        raise BadParameter(f"{path}: {why.strerror}", expected, do) from why


def _read_json(path: Path, kind: type) -> Any:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as why:
        raise BadParameter(f"{path} cannot be read: {why}", "a run folder as runbook run leaves it", "name another --run") from why  # fmt: skip
    if not isinstance(value, kind):
        raise BadParameter(f"{path} holds no {kind.__name__}", "a run folder as runbook run leaves it", "name another --run")  # fmt: skip
    return value


def _keys(work: Any) -> list[str]:
    """Secrets in files that are known to hold one: the key of this workspace's server, the token of the hub."""
    home = Path(os.environ.get("HF_HOME") or Path(os.environ.get("HOME", "/")) / ".cache" / "huggingface")
    found = []
    for path in (work.jobs / "server.key", Path(os.environ.get("HF_TOKEN_PATH") or home / "token")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            found.append(path.read_text(encoding="utf-8").strip())
    return found


def _writable(place: Path) -> None:
    if place.exists():
        raise BadParameter(f"{place} is there already", "a new file", "choose another --out, or remove it")
    if not os.access(place.parent, os.W_OK):
        raise BadParameter(f"{place.parent} is no folder that may be written to", "one that is", "choose another --out")  # fmt: skip


def _write(place: Path, archive: bytes) -> None:
    """The whole file or none, for its owner alone."""
    partial = place.with_name(f"{place.name}.part")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(archive)
        partial.replace(place)
    except FileExistsError as why:
        raise BadParameter(f"{partial} is there: another bundle is being written, or one was interrupted", "one at a time", f"rm {partial}") from why  # fmt: skip
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def _verified(path: Path, form: Form) -> None:
    from runbook import tarball

    try:
        archive = path.read_bytes()
    except OSError as why:
        raise BadParameter(f"{path}: {why.strerror}", "a file that runbook bundle wrote", "name another") from why  # fmt: skip
    count, wrong = tarball.problems(archive, str(path))
    if form is Form.JSON:
        told = {"files": count, "sha256": tarball.sha256(archive), "wrong": wrong}
        typer.echo(json.dumps(told, ensure_ascii=False, indent=1))
    if wrong:
        from runbook.report import plain

        raise ActionFailed(
            f"{path} is not as its manifest says: {plain('; '.join(wrong[:5]))}", "every file with its hash", "ask for it again"
        )  # fmt: skip
    if form is Form.TEXT:
        typer.echo(f"{count} files, each as the manifest says\nsha256    {tarball.sha256(archive)}")
