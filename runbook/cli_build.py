"""``runbook build``: what is compiled on this machine. ``flash-attn`` is the one thing so far."""

from pathlib import Path
from typing import Annotated, Any

import typer

from runbook import consent
from runbook.errors import BadParameter

app = typer.Typer(
    help="Compile what has no wheel: a plan first, then a guarded build.",
    no_args_is_help=True,
    add_completion=False,
)


@app.callback()
def _group() -> None:
    """One callback makes typer keep the command's name although there is one command only."""


@app.command(name="flash-attn")
def flash_attn(
    release: Annotated[str, typer.Option("--release", help="Release to build; of --source its own.")] = "",
    source: Annotated[
        Path | None,
        typer.Option("--source", help="An sdist or a source folder, instead of the package index."),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option("--gpu", help="Card to build for, such as H200 or sm_90; default: those present."),
    ] = None,
    target: Annotated[
        str, typer.Option("--target", metavar="PYTHON", help="Interpreter whose torch it is built against.")
    ] = "",
    stack: Annotated[str, typer.Option("--stack", help="Name of a stack, instead of --target.")] = "auto",
    jobs: Annotated[
        int | None, typer.Option("--jobs", min=1, help="Fewer compile jobs than cores and memory allow.")
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without", help="Leave out dropout, alibi, softcap, local or backward; compiles in less time."
        ),
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Build although none is needed.")] = False,
    install: Annotated[
        bool, typer.Option("--install", help="Put the wheel into the target; otherwise it is only kept.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Build; otherwise ask, or only show without a terminal.")
    ] = False,
) -> None:
    """Say whether a flash-attn of one's own is needed; if so plan the build, run it guarded, keep the wheel, check its kernel."""
    from runbook import arch, connect, pins, workspace
    from runbook.actions import Context
    from runbook.actions.flash_build import BuildFlash
    from runbook.actions.flash_plan import DEFAULT_RELEASE, Request
    from runbook.actions.jobs import Owner

    if release and source:
        raise BadParameter(
            "--release beside --source", "one of the two: sources have a release", "leave one out"
        )
    work = workspace.workspace()
    host: Any = connect.cached(connect.probe("live", stack, target, work))
    python = connect.interpreter(target) if target else work.target_python(host.stack)
    cards = arch.cards(host, gpu) if gpu else {}
    asked = Request(
        release or DEFAULT_RELEASE,
        source.absolute() if source else None,
        cards,
        jobs,
        tuple(dict.fromkeys(without or ())),
    )
    chosen = pins.stack(host.stack)
    action = BuildFlash(
        Context(work, chosen, python, not target, chosen.model, Owner.of(), 0),
        asked,
        anyway=anyway,
        install=install,
    )
    for line in action.plan():
        typer.echo(line)
    if not action.to_do:
        return
    if consent.given(yes):
        action.apply(typer.echo)
