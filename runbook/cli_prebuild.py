"""``runbook prebuild`` and ``runbook boot``: do the first start's compiling in advance, and see where a start's time went."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from runbook import consent
from runbook.errors import BadParameter
from runbook.forms import Form

DEADLINE_S = 1800


StackOption = Annotated[
    str, typer.Option("--stack", help="Name of a stack; auto takes the one that fits this machine.")
]
FormOption = Annotated[Form, typer.Option("--format", help="How it is printed.")]


def prebuild(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] [-- FLAGS]",
            help="As for runbook serve: what the server will be started with.",
            show_default=False,
        ),
    ] = None,
    profile: Annotated[
        str, typer.Option("--profile", help="The profile the server will be started with.")
    ] = "baseline",
    stack: StackOption = "auto",
    target: Annotated[
        str,
        typer.Option("--target", metavar="PATH", help="An interpreter of yours; its bytecode is left alone."),
    ] = "",
    jobs: Annotated[
        int | None,
        typer.Option("--jobs", min=1, help="Compilers at once; default: what memory and cores allow."),
    ] = None,
    pack: Annotated[
        Path | None,
        typer.Option("--pack", metavar="FILE", help="Instead: write the compile caches to an archive."),
    ] = None,
    unpack: Annotated[
        Path | None,
        typer.Option(
            "--unpack", metavar="FILE", help="Instead: take the caches of an archive in place of these."
        ),
    ] = None,
    deadline_s: Annotated[
        int, typer.Option("--deadline-s", min=10, help="Seconds a start may take to become ready.")
    ] = DEADLINE_S,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes",
            help="Do it without asking; without it a terminal is asked and a pipeline is only shown the plan.",
        ),
    ] = False,
    format_: FormOption = Form.TEXT,
) -> None:
    """Compile bytecode and kernels before the first start, and prove that the next one compiles nothing. Exit code 1: it does.

    Kernels are built by a start with dummy weights: it needs the checkpoint's small files only, so weights may still be on their way.
    """
    from runbook.actions import carrying
    from runbook.actions.prebuild import Prebuild

    if pack and unpack:
        raise BadParameter("--pack and --unpack at once", "one of them", "leave one out")
    named, own = _split(words or [])
    ctx = _context(stack, target, named, deadline_s)

    def say(line: str) -> None:
        typer.echo(line, err=format_ is Form.JSON)

    if pack:
        carrying.pack(ctx, pack, say)
        return
    if unpack:
        say(f"replace  {ctx.work.caches(ctx.stack.name)} by what lies in {unpack}")
        if consent.given(yes):
            carrying.unpack(ctx, unpack, say)
        return
    action = Prebuild(ctx, jobs, profile, own)
    for line in action.plan():
        say(line)
    if not consent.given(yes):
        return
    done = action.apply(say)
    if format_ is Form.JSON:
        typer.echo(json.dumps({**vars(done), "proven": done.proven}, indent=1))
    else:
        typer.echo("\n".join(done.lines()))
    raise typer.Exit(0 if done.proven else 1)


def boot(
    log: Annotated[
        Path | None,
        typer.Argument(
            metavar="[LOG]",
            help="A server's log from anywhere; default: the last start of this workspace.",
            show_default=False,
        ),
    ] = None,
    format_: FormOption = Form.TEXT,
) -> None:
    """Show where the last start's time went, against earlier starts of the same packages, flags and weights, and the caches to keep."""
    from runbook import workspace

    found = _of_log(log) if log else _of_ledger(workspace.workspace())
    typer.echo(json.dumps(found, indent=1) if format_ is Form.JSON else _text(found))


def _of_log(log: Path) -> dict[str, Any]:
    from runbook.parse import boot_log
    from runbook.serving import boot

    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError as why:
        raise BadParameter(f"{log}: {why.strerror}", "the log of a vLLM server", "check the name") from None
    steps, last = boot_log.steps(text), boot_log.last_stamp(text)
    if not steps or last is None:
        raise BadParameter(
            f"no line in {log} tells of a start",
            "the log of a vLLM server from its beginning",
            "check the name",
        )
    # How long Python took to the first line is not in a log.
    seconds = max(0.0, (last[0] - steps[0].at).total_seconds()) + 1.0
    phases = boot.account(boot.by_stamps(steps, last, seconds), seconds)[1:]
    total = sum(one.seconds for one in phases)
    return {
        "from": str(log),
        "since": "the banner: what came before it is not in a log",
        "ready_s": round(total, 1),
        "phases": [vars(one) for one in phases],
        "unexplained_s": round(boot.unexplained(phases), 2),
        "compiled": list(boot_log.compile_lines(text)),
        "compared": "",
        "folders": [],
    }


def _of_ledger(work: Any) -> dict[str, Any]:
    from runbook import measured
    from runbook.actions import ledger
    from runbook.cache_facts import Walker
    from runbook.serving import boot

    rows = ledger.read(work)
    if not rows:
        raise BadParameter(
            f"no start is on record in {ledger.path(work)}", "a server that was started here", "runbook serve"
        )
    last, walker = rows[-1], Walker()
    folder = work.caches(last.stack)
    against = boot.compared(last, rows[:-1])
    return {
        **last.row(),
        "from": str(measured.path(work, "boot")),
        "since": "the command",
        "unexplained_s": round(boot.unexplained(last.phases), 2),
        "compared": against.words,
        "earlier": against.earlier,
        "slower_than": against.slower_than,
        "folders": [
            {"path": str(path), "bytes": walker.entry(str(path)).bytes}
            for path in (*sorted(folder.glob("*")), *sorted(folder.glob(".cache")))
        ],
    }


def _text(found: dict[str, Any]) -> str:
    lines = [f"ready after {found['ready_s']:.1f} s, from {found['since']}"]
    if found.get("stack"):
        lines[0] += f"; {found['stack']}, {found['model']}, {found['at']}"
    for one in found["phases"]:
        mark = "  ?" if one["by"] == "nothing" else ""
        lines.append(f"{one['seconds']:8.1f} s  +-{one['about_s']:.1f}  {one['name']}{mark}")
    lines.append(f"{found['unexplained_s']:8.1f} s         no line explains (?)")
    lines += [f"compared  {found['compared']}"] if found["compared"] else []
    lines += [f"compiled  {number:6}  {family}" for family, number in found.get("made", {}).items()]
    lines += [f"compiled  {line[:100]}" for line in found.get("compiled", ())]
    lines += [f"keep      {one['bytes'] / 2**20:8.1f} MiB  {one['path']}" for one in found["folders"]]
    return "\n".join(lines)


def _split(words: list[str]) -> tuple[str, tuple[str, ...]]:
    named = words[0] if words and not words[0].startswith("-") else ""
    return named, tuple(words[1:] if named else words)


def _context(stack: str, target: str, model: str, deadline_s: int) -> Any:
    from runbook import connect, pins, workspace
    from runbook.actions import Context
    from runbook.actions.jobs import Owner
    from runbook.actions.model_files import folder_of_name

    work = workspace.workspace()
    fits = connect.probe("live", "auto", "", work).stack if stack == "auto" else stack
    chosen = pins.buildable(fits) if stack != "auto" else pins.stack(fits)
    python = connect.interpreter(target) if target else work.target_python(chosen.name)
    name = model or chosen.model
    folder_of_name(work, name)
    return Context(work, chosen, python, not target, name, Owner.of(), deadline_s)
