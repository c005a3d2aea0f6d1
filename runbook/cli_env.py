"""``runbook env``: plan, build, adopt, verify, diff, roll back, remove and list target environments.

Imports that cost time are made by the command that needs them, as in ``cli.py``.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runbook import consent
from runbook.errors import BadParameter
from runbook.forms import Form

if TYPE_CHECKING:
    from runbook.actions.build_target import BuildTarget
    from runbook.actions.builds import Build, Builds

LIMIT = 12
OPERAND = (
    "A stack, STACK/BUILD, the path of an environment, recorded:NAME, a snapshot file, a run folder, a day or time of a run "
    "such as 2026-11-29, or now."
)
app = typer.Typer(
    help="Plan, build, adopt, verify, compare, roll back and remove target environments.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


StackOption = Annotated[
    str, typer.Option("--stack", help="Name of a stack; auto takes the one that fits this machine.")
]
YesOption = Annotated[
    bool, typer.Option("--yes", help="Do it without asking; without it a terminal is asked and a pipeline is only shown the plan.")
]  # fmt: skip
FormOption = Annotated[Form, typer.Option("--format", help="How it is printed.")]
AllOption = Annotated[bool, typer.Option("--all", help="Show every line, not only the weightiest.")]


@app.command()
def plan(
    stack: StackOption = "auto",
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="PATH",
            help="Compare with this environment instead of the stack's current target.",
        ),
    ] = "",
    everything: AllOption = False,
    form: FormOption = Form.TEXT,
) -> None:
    """Resolve, and show what a build would add, remove and swap, fetch and need; nothing is changed. Exit code 1: it cannot be resolved."""
    from runbook.actions import planning

    found = planning.planned(_builder(stack), target)
    if form is Form.JSON:
        typer.echo(planning.as_json(found), nl=False)
    else:
        typer.echo(planning.as_text(found, limit=_limit(everything)))
    raise typer.Exit(planning.exit_code(found))


@app.command()
def build(
    stack: StackOption = "auto",
    yes: YesOption = False,
    again: Annotated[
        bool, typer.Option("--again", help="Build anew even if the current target is whole.")
    ] = False,
) -> None:
    """Build the stack's target in a new folder and switch to it when it is whole; the old one stays for a rollback."""
    from runbook.actions import planning

    action = _builder(stack)
    found = planning.planned(action, "", again=again)
    typer.echo(planning.as_text(found, limit=LIMIT))
    if not isinstance(found, planning.Plan) or planning.exit_code(found):
        raise typer.Exit(1)
    if found.because and consent.given(yes):
        made = action.build(lambda line: typer.echo(f"+ {line}"))
        typer.echo(f"current    {made.folder}")
    elif not found.because and action.builds.held():
        with action.builds.locked():
            action.builds.settle()
        typer.echo("the build that was gone back to is no longer held; from now on the stack's lock decides")


@app.command()
def adopt(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A venv, a conda environment, or an interpreter.")
    ],
    yes: YesOption = False,
    everything: AllOption = False,
    form: FormOption = Form.TEXT,
) -> None:
    """Examine an environment, say how far it is from each stack, and propose the least change. A yes builds the nearest stack beside it; PATH itself is never changed."""
    from runbook import connect, pins
    from runbook.actions import adopting

    seen = adopting.examined(path)
    found = adopting.distances(seen, pins.stacks_for(connect.probe("live", "auto", "", _work())))
    if form is Form.JSON:
        typer.echo(adopting.as_json(seen, found), nl=False)
    else:
        typer.echo(adopting.as_text(seen, found, limit=_limit(everything)))
    if not found[0].changes or form is Form.JSON:
        return
    action = _builder(found[0].stack.name)
    if action.fault() is None:
        typer.echo(f"built already: {action.builds.work.target(found[0].stack.name)}")
    elif consent.given(yes):
        made = action.build(lambda line: typer.echo(f"+ {line}"))
        typer.echo(f"current    {made.folder}")


@app.command()
def verify(
    stack: StackOption = "auto",
    build: Annotated[
        str, typer.Option("--build", metavar="ID", help="A build that is not the current one.")
    ] = "",
    target: Annotated[
        str,
        typer.Option(
            "--target",
            metavar="PATH",
            help="An environment of your own; it is held to the stack's lock where --stack names one.",
        ),
    ] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Compare sizes only; bytes are not read.")] = False,
    everything: AllOption = False,
    form: FormOption = Form.TEXT,
) -> None:
    """Compare an environment with its lock and every file with its package's record. Exit code 1: something was changed."""
    from runbook.actions import adopting, verifying

    if target and build:
        raise BadParameter("--target beside --build", "one of the two", "leave the other out")
    if target:
        from runbook import pins

        seen = adopting.examined(target)
        lock = None if stack == "auto" else pins.locked(pins.stack(stack).lock(seen.minor))
        against = "what its packages recorded" if lock is None else f"the lock of {stack}"
        found = verifying.of_site(seen.site, lock, against, by_hash=not quick)
    else:
        found = verifying.of_build(_build_of(_builds(stack), build), by_hash=not quick)
    if form is Form.JSON:
        typer.echo(verifying.as_json(found), nl=False)
    else:
        typer.echo(verifying.as_text(found, limit=_limit(everything)))
    raise typer.Exit(0 if found.whole else 1)


@app.command()
def rollback(
    stack: StackOption = "auto",
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="ID", help="The build to go back to; default: the one that was current before."
        ),
    ] = "",
    yes: YesOption = False,
) -> None:
    """Make the build that was current before current again: at once, and as it was left. Repeat it to come back."""
    builds = _builds(stack)
    current = builds.current()
    there = builds.get(to) if to else builds.previous()
    if there is None:
        raise BadParameter(
            f"{builds.stack} has no earlier build to go back to",
            "a build that was current before and was not removed",
            "runbook env list",
        )
    if current is not None and there.name == current.name:
        raise BadParameter(f"{there.name} is current already", "another build", "runbook env list")
    changed = there.changed()
    typer.echo(f"from       {current.name if current else 'none'}")
    typer.echo(
        f"to         {there.name}"
        + ("" if changed is None else f"\nnote       it is not as it was built: {changed}")
    )
    typer.echo("keeps      it until the next runbook env build, whatever the stack's lock says then")
    if consent.given(yes):
        with builds.locked():
            builds.switch(there.name, "rollback")
        typer.echo(f"current    {there.folder}")


@app.command()
def remove(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STACK[/ID]",
            help="A stack's target with all its builds, or one build that is not current.",
        ),
    ],
    yes: YesOption = False,
) -> None:
    """Remove one build, or all of a stack. Its compile caches stay: runbook clean removes them."""
    stack, _, one = name.partition("/")
    builds = _builds(stack)
    current = builds.current()
    if one and current is not None and one == current.name:
        raise BadParameter(
            f"{one} is current",
            "a build that is not",
            f"runbook env rollback first, or runbook env remove {stack}",
        )
    gone = [builds.get(one)] if one else builds.all()
    if not gone:
        raise BadParameter(f"{stack} has no build", "a stack with one", "runbook env list")
    for each in gone:
        typer.echo(f"remove     {each.folder} ({_gib(each)})")
    typer.echo("undo       none; runbook env build makes a new one")
    if consent.given(yes):
        with builds.locked():
            if one:
                builds.remove(one)
            else:
                builds.remove_all()
        typer.echo("removed")


@app.command()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=OPERAND)],
    b: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    stack: StackOption = "auto",
    everything: AllOption = False,
    form: FormOption = Form.TEXT,
) -> None:
    """Compare two environments, machines or dates, most suspicious first. Exit codes: 0 the same, 1 different, 3 nothing differs but something could not be compared."""
    from runbook import differ, operands

    names = (a, b)
    sides = operands.pair(names, stack, _work())
    found = differ.compare(*sides)
    if form is Form.JSON:
        typer.echo(differ.as_json(names, sides, found), nl=False)
    else:
        typer.echo(differ.as_text(names, sides, found, everything=everything))
    raise typer.Exit(found.exit_code)


@app.command()
def snapshot(
    what: Annotated[str, typer.Argument(metavar="WHAT", help=OPERAND)] = "now",
    stack: StackOption = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", help="Write it into this file instead of printing it.")
    ] = None,
) -> None:
    """Print what diff compares, redacted, as a file that can be carried to another machine."""
    from runbook import operands
    from runbook.snapshot import as_json
    from runbook.workspace import write_whole

    text = as_json(operands.single(what, stack, _work()))
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        write_whole(out, text)
    except OSError as why:
        raise BadParameter(
            f"--out {out}: {why.strerror}", "a file that can be written", "name another"
        ) from why


@app.command()
def refresh(
    out: Annotated[
        Path, typer.Option("--out", help="A new folder for the proposed manifest, requirements and locks.")
    ],
    stack: StackOption = "auto",
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="In a checkout: put it in the place of the stack's own files if all checks pass."
        ),
    ] = False,
    form: FormOption = Form.TEXT,
) -> None:
    """Read the index's metadata again, resolve the stack anew, and propose what moves. Exit code 1: a pin no longer holds or a check fails."""
    from runbook import pins
    from runbook import refresh as refreshing

    found = refreshing.propose(pins.stack(_stack(stack)), out.absolute(), write=write)
    if form is Form.JSON:
        typer.echo(refreshing.as_json(found), nl=False)
    else:
        typer.echo(refreshing.as_text(found))
    raise typer.Exit(1 if found.failed else 0)


@app.command("list")
def list_(form: FormOption = Form.TEXT) -> None:
    """List the builds of every stack: which is current, whether it is as it was built, and its size."""
    import json

    from runbook import pins

    rows = []
    for name in pins.names():
        builds = _builds(name)
        current = builds.current()
        for each in builds.all():
            state = each.changed() or "as built"
            rows.append(
                {
                    "stack": name,
                    "build": each.name,
                    "current": current is not None and each.name == current.name,
                    "python": each.stamp.get("python"),
                    "bytes": each.stamp.get("bytes"),
                    "state": state,
                }
            )
    if form is Form.JSON:
        typer.echo(json.dumps({"schema": "builds/1", "builds": rows}, indent=1))
        return
    for row in rows:
        mark = "*" if row["current"] else " "
        typer.echo(f"{mark} {row['stack']:20} {row['build']:40} {row['state']}")
    typer.echo("* is current" if rows else "no target is built yet: runbook env build")


def _limit(everything: bool) -> int:
    return sys.maxsize if everything else LIMIT


def _gib(build: "Build") -> str:
    size = build.stamp.get("bytes")
    return (
        f"{size / 2**30:.1f} GiB, shared with uv's cache where that is on the same disk"
        if size
        else "size not known"
    )


def _work() -> Any:
    from runbook.workspace import workspace

    return workspace()


def _stack(name: str) -> str:
    from runbook import connect, pins

    return (
        pins.stacks_for(connect.probe("live", "auto", "", _work()))[0]
        if name == "auto"
        else pins.stack(name).name
    )


def _builds(stack: str) -> "Builds":
    from runbook.actions.builds import Builds

    return Builds(_work(), _stack(stack))


def _build_of(builds: "Builds", name: str) -> "Build":
    found = builds.get(name) if name else builds.current()
    if found is None:
        raise BadParameter(
            f"{builds.stack} has no current target",
            "a target that is built",
            f"runbook env build --stack {builds.stack}",
        )
    return found


def _builder(stack: str) -> "BuildTarget":
    from runbook import pins
    from runbook.actions import Context
    from runbook.actions.build_target import BuildTarget
    from runbook.actions.jobs import Owner

    work, chosen = _work(), pins.stack(_stack(stack))
    python = work.target_python(chosen.name)
    return BuildTarget(
        Context(work, chosen, python, ours=True, model=chosen.model, owner=Owner.of(), deadline_s=0)
    )
