"""The command line: run, check, explain, arch, abi, collect, record, stop, lab, clean; env and build are groups.

Imports that cost time are made by the command that needs them: ``runbook check`` is asked often and must be quick.
"""

import errno
import os
import sys
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from runbook import (
    __version__,
    cli_build,
    cli_bundle,
    cli_claims,
    cli_env,
    cli_memory,
    cli_model,
    cli_parity,
    cli_prebuild,
    cli_rollout,
    cli_serve,
    cli_status,
    cli_triage,
    cli_validate,
    cli_warm,
    engine,
    report,
)
from runbook.errors import BadParameter, RunbookError
from runbook.forms import Form
from runbook.model import Cost, Finding

EPILOG = (
    "Exit codes: 0 every expected finding is there and ok, warn or skip; 1 something failed; 2 bad input; "
    "3 no verdict (unknown, not run, a kernel died); 4 a bug of ours; 130 interrupted."
)
app = typer.Typer(
    name="runbook",
    help="From bare driver to a served Qwen3.5 model, one layer at a time, with evidence.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


app.command(epilog=EPILOG)(cli_model.model)
app.command(epilog=EPILOG)(cli_model.fetch)
app.command(name="plan-memory", epilog=EPILOG)(cli_memory.plan_memory)
app.command(epilog=EPILOG)(cli_parity.parity)
app.command(epilog=EPILOG)(cli_rollout.rollout)
app.command(name="normalize-prompt", epilog=EPILOG)(cli_rollout.normalize_prompt)
app.command(epilog=EPILOG)(cli_prebuild.prebuild)
app.command(epilog=EPILOG)(cli_prebuild.boot)
app.command(epilog=EPILOG)(cli_serve.serve)
app.command(name="warm-up", epilog=EPILOG)(cli_warm.warm_up)
app.command(epilog=EPILOG)(cli_warm.limits)
app.command(epilog=EPILOG)(cli_validate.validate)
app.command(epilog=EPILOG)(cli_validate.soak)
app.command(epilog=EPILOG)(cli_status.status)
app.command(epilog=EPILOG)(cli_triage.triage)
app.command(epilog=EPILOG)(cli_bundle.bundle)
app.add_typer(cli_build.app, name="build")
app.add_typer(cli_claims.app, name="claims")
app.add_typer(cli_env.app, name="env")


class Format(str, Enum):
    """How findings are printed."""

    TEXT = "text"
    JSON = "json"
    JUNIT = "junit"


MachineOption = Annotated[
    str,
    typer.Option(
        "--machine",
        help="live, or recorded:NAME (a recorded machine or its folder); auto is $RUNBOOK_MACHINE, else live.",
    ),
]
TargetOption = Annotated[
    str,
    typer.Option(
        "--target",
        help="Interpreter of the environment to examine; default: the one the runbook built for the stack.",
        metavar="PYTHON",
    ),
]
ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        help="Checkpoint to examine: a generated model's name, a folder or a hub id; default: the stack's.",
    ),
]
StackOption = Annotated[
    str, typer.Option("--stack", help="Name of a stack; auto takes the one that fits this machine.")
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"runbook {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog=EPILOG)
def run(
    pages: Annotated[
        list[str] | None, typer.Argument(help="Pages such as 04_torch, 04 or torch; all when none is named.")
    ] = None,
    stack: StackOption = "auto",
    target: TargetOption = "",
    machine: MachineOption = "auto",
    plan: Annotated[bool, typer.Option("--plan", help="Print the steps and stop.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", help="Run folder; default: a new one in the workspace.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, or with the latest.")
    ] = False,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Do not stop at a gate that fails.")
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Also write every reading into this folder, as a recorded machine."),
    ] = None,
    p: Annotated[
        list[str] | None,
        typer.Option("-p", metavar="K=V", help="A parameter of the pages; may be given several times."),
    ] = None,
) -> None:
    """Walk the pages headless and leave a run folder: notebooks, findings, report. Its place is printed last."""
    from runbook import walk

    work = _workspace()
    given = _pairs(p or [])
    if resume and (pages or given or stack != "auto" or target or plan):
        raise BadParameter(
            "--resume goes on with a run as it was begun",
            "no pages, stack, target or parameters beside it",
            "leave them out, or start a new run",
        )
    asked = walk.plan(pages or [], machine, stack, target, given, work)
    if plan:
        typer.echo("\n".join(walk.described(asked)))
        return
    folder = (out or (walk.latest(work) if resume else walk.new_folder(work))).resolve()
    asked = walk.begin(asked, folder, resume=resume)
    if record:
        os.environ["RUNBOOK_RECORD"] = str(record.resolve())
    code = _walk_with_progress(walk, asked, folder, work, keep_going=keep_going, resume=resume)
    if record:
        from runbook.probes.record import finish

        stacks = tuple(dict.fromkeys(step.stack for step in asked.steps))
        _record_rest(stacks, target)
        finish(record.resolve(), stacks)
    typer.echo(str(folder))
    raise typer.Exit(code)


def _record_rest(stacks: Sequence[str], target: str) -> None:
    """Put what ``collect`` asks besides the pages, and what a check could not ask before the target was built."""
    from runbook import collect, connect
    from runbook.checks import ALL

    for stack in stacks:
        host = connect.after_a_walk(connect.probe("live", stack, target, _workspace()))
        engine.run(engine.select(ALL, [], Cost.INSIDE), ALL, host)
        collect.report(host, "recorded")


def _walk_with_progress(
    walk: Any, asked: Any, folder: Path, work: Any, *, keep_going: bool, resume: bool
) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    total = len(asked.steps)
    console = Console(highlight=False)
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("starting", total=total)
        ended = 0

        def say(line: str) -> None:
            console.print(line, markup=False, soft_wrap=True)

        def progress(step: Any, state: str) -> None:
            nonlocal ended
            if not state:
                bar.update(task, description=f"{step.spec.name} ({step.stack})")
                return
            ended += 1
            bar.update(task, completed=ended)
            for line in walk.told(step, state, ended, total, folder):
                say(line)

        code: int = walk.carry_out(asked, folder, work, say, progress, keep_going=keep_going, resume=resume)
    return code


@app.command(epilog=EPILOG)
def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Ids such as TORCH-002, or layers such as TORCH; all when none is named."),
    ] = None,
    cost: Annotated[
        Cost, typer.Option("--cost", help="The dearest kind of question that may be asked.")
    ] = Cost.STATIC,
    list_: Annotated[bool, typer.Option("--list", help="List the checks and stop.")] = False,
    machine: MachineOption = "auto",
    target: TargetOption = "",
    stack: StackOption = "auto",
    model: ModelOption = "",
    format_: Annotated[Format, typer.Option("--format", help="How findings are printed.")] = Format.TEXT,
    waive: Annotated[
        list[str] | None,
        typer.Option(
            "--waive", metavar="ID", help="Show a failed check as warn; may be given several times."
        ),
    ] = None,
    evidence: Annotated[
        bool | None,
        typer.Option(
            "--evidence/--brief",
            help="Print every finding with its readings, or only those that are not ok; default: every one where checks are named.",
        ),
    ] = None,
) -> None:
    """Judge this machine (or a recorded one) without changing anything; by default from files and quick commands only."""
    from runbook import connect
    from runbook.checks import ALL, BY_ID, python_env
    from runbook.parse import binaries, checkpoint

    chosen = engine.select(ALL, names or [], cost)
    if list_:
        typer.echo(report.listing(chosen))
        return
    if strange := [one for one in waive or [] if one not in BY_ID]:
        raise BadParameter(
            f"--waive {strange[0]}: there is no such check", "the id of a check", "runbook check --list"
        )
    host = _host(machine, stack, target, model)
    text, places = format_ is Format.TEXT, connect.places(host)
    if text and (banner := connect.banner(host)):
        typer.echo(report.wrapped(banner))
    whole = bool(names) if evidence is None else evidence

    printed: list[str] = []

    def seen(one: Finding) -> None:
        if text:
            printed.append(report.text(one, places))
            typer.echo(printed[-1])

    cached = connect.cached(host)
    if host.machine == "live" and host.has_target and not names:
        cached.ahead((binaries.ARGV, python_env.PIP_CHECK, checkpoint.ARGV))
    findings = engine.run(chosen, ALL, cached, waive=waive or [], seen=seen if whole else lambda _: None)
    if text and not whole:
        brief = report.brief(findings, places)
        printed.append(brief)
        typer.echo(brief)
    if text:
        typer.echo(report.ending(findings, "\n".join(printed), places))
    elif format_ is Format.JSON:
        typer.echo(report.json_text(findings), nl=False)
    else:
        typer.echo(report.junit_text(report.as_json(one) for one in findings))
    raise typer.Exit(engine.exit_code(findings))


@app.command(epilog=EPILOG)
def explain(
    check_id: Annotated[str, typer.Argument(metavar="ID", help="The id of a check, such as TORCH-002.")],
) -> None:
    """Print the page of a check: what it means, how to see it yourself, why it happens, fix, undo, source."""
    from runbook.checks import ALL

    text = report.explain_page(check_id.upper())
    if text is None:
        raise BadParameter(f"no page for {check_id!r}", f"an id such as {ALL[0].id}", "runbook check --list")
    typer.echo(text + cli_claims.explained(check_id.upper()), nl=False)


@app.command(epilog=EPILOG)
def arch(
    wheels: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Wheels to look into before they are installed, instead of an environment.",
            metavar="[WHEEL]...",
        ),
    ] = None,
    gpu: Annotated[
        list[str] | None,
        typer.Option(
            "--gpu",
            metavar="NAME",
            help='A card, as "RTX 4090" or sm_120; may be given several times. Default: those in this machine.',
        ),
    ] = None,
    target: TargetOption = "",
    stack: StackOption = "auto",
    machine: MachineOption = "auto",
    format_: Annotated[Form, typer.Option("--format", help="How the table is printed.")] = Form.TEXT,
) -> None:
    """Show which GPUs each installed library has machine code for: native, ptx-jit or none. Exit code 1: torch or vLLM has none."""
    from runbook import arch as arching
    from runbook import connect

    if wheels and (target or stack != "auto"):
        raise BadParameter("wheels beside --target or --stack", "one of the two", "leave the other out")
    host = connect.cached(connect.probe(machine, stack, target, _workspace()))
    asked = arching.cards(host, gpu or [])
    files = arching.of_wheels(wheels) if wheels else arching.of_target(host)
    if format_ is Form.JSON:
        typer.echo(arching.as_json(files, asked), nl=False)
    else:
        if not wheels and (banner := connect.banner(host.host)):
            typer.echo(report.wrapped(banner))
        typer.echo(arching.as_text(files, asked), nl=False)
    raise typer.Exit(arching.exit_code(files, asked, whole=not wheels))


@app.command(epilog=EPILOG)
def abi(
    wheels: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Wheels to judge against the target's torch before they are installed; nothing in the target changes.",
            metavar="[WHEEL]...",
        ),
    ] = None,
    target: TargetOption = "",
    stack: StackOption = "auto",
    machine: MachineOption = "auto",
    format_: Annotated[Form, typer.Option("--format", help="How the table is printed.")] = Form.TEXT,
) -> None:
    """Show which libraries and symbols each extension lacks, as the loader would find them. Exit code 1: something is missing."""
    from runbook import abi as auditing
    from runbook import connect

    host = connect.probe(machine, stack, target, _workspace())
    found = auditing.of_wheels(host, wheels) if wheels else auditing.of_target(host)
    if format_ is Form.JSON:
        typer.echo(auditing.as_json(found), nl=False)
    else:
        if banner := connect.banner(host):
            typer.echo(report.wrapped(banner))
        typer.echo(auditing.as_text(found), nl=False)
    raise typer.Exit(auditing.exit_code(found))


@app.command(epilog=EPILOG)
def collect(
    target: TargetOption = "",
    stack: StackOption = "auto",
    machine: MachineOption = "auto",
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the report into this file instead of printing it.")
    ] = None,
) -> None:
    """Print the report that vLLM's bug form asks for, without importing torch or vLLM. Default: the stack's environment, else the first python on PATH."""
    from runbook import collect as collecting
    from runbook import connect

    host, chosen = cli_bundle.reported(machine, stack, target, _workspace())
    banner = connect.banner(host)
    text = (report.wrapped(banner) + "\n" if banner else "") + collecting.report(connect.cached(host), chosen)
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as why:
        raise BadParameter(
            f"--out {out}: {why.strerror}", "a file that can be written", "name another"
        ) from why


@app.command(
    epilog=EPILOG, context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
def flags(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="COMMAND...", help="vllm serve MODEL --flags, the module form, or flags alone."
        ),
    ],
    target: TargetOption = "",
    stack: StackOption = "auto",
    installed: Annotated[
        bool,
        typer.Option(
            "--installed", help="Ask the installed parser (about 10 s) even where its list is shipped."
        ),
    ] = False,
    format_: Annotated[Form, typer.Option("--format", help="How they are printed.")] = Form.TEXT,
) -> None:
    """Say of each flag of a vLLM command whether a release takes it: ok, default, unknown, removed, renamed, value. Exit code 1: vLLM refuses."""
    from runbook import connect
    from runbook import flags as judging

    asked, about = judging.with_config(judging.command(words))
    host = connect.cached(connect.probe("live", stack, target, _workspace()))
    by = judging.options(host, named_stack=stack != "auto" and not target, installed=installed)
    found = judging.judged(asked, by)
    said = (*about, *judging.notes(asked, by.version))
    show = judging.as_json if format_ is Form.JSON else judging.as_text
    typer.echo(show(found, by, said), nl=False)
    raise typer.Exit(judging.exit_code(found))


@app.command(epilog=EPILOG)
def record(
    out: Annotated[
        Path,
        typer.Option(
            "--out", help="Folder to write the recorded machine to; its name becomes the machine's."
        ),
    ],
    cost: Annotated[
        Cost, typer.Option("--cost", help="The dearest kind of question that may be asked.")
    ] = Cost.INSIDE,
    target: TargetOption = "",
    stack: StackOption = "auto",
) -> None:
    """Ask this machine what the checks ask and write the answers down, redacted, as a machine that can be replayed."""
    from runbook import collect, connect, notebooks
    from runbook.checks import ALL
    from runbook.probes import questions
    from runbook.probes.record import finish

    if (out / "machine.toml").exists():
        raise BadParameter(f"{out} already holds a recorded machine", "a new folder", "choose another --out")
    os.environ["RUNBOOK_RECORD"] = str(out.resolve())
    host = connect.probe("live", stack, target, _workspace())
    cached = connect.cached(host)
    findings = engine.run(engine.select(ALL, [], cost), ALL, cached)
    collect.report(cached, "recorded")
    for question in notebooks.looks():
        if questions.cost(question).within(cost):
            questions.ask(cached, question)
    finish(out.resolve(), (host.stack,) if host.has_target else ())
    typer.echo(report.summary(findings))
    typer.echo(
        "Names, addresses, UUIDs, serials and tokens were replaced; read the answers before you share them."
    )
    typer.echo(f"replay it: runbook check --machine recorded:{out.resolve()}")


@app.command(epilog=EPILOG)
def stop() -> None:
    """Stop every server and build of this workspace, and wait until each is gone. May be repeated."""
    import time

    from runbook.actions.jobs import Jobs

    jobs = Jobs(_workspace().jobs)
    before, began = len(jobs.processes()), time.monotonic()
    stopped = jobs.stop_all()
    seconds, left = time.monotonic() - began, len(jobs.processes())
    if stopped:
        typer.echo(f"stopped: {', '.join(stopped)} ({before} processes) in {seconds:.1f} s; {left} left")
    else:
        typer.echo("nothing was running")


@app.command(epilog=EPILOG)
def lab(
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="Port of JupyterLab on loopback.")
    ] = 8888,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open a browser.")] = True,
) -> None:
    """Open JupyterLab at page 00."""
    from runbook import notebooks

    folder = notebooks.editable(_workspace())
    argv = [
        sys.executable,
        "-m",
        "jupyter",
        "lab",
        str(folder / "00_start.ipynb"),
        f"--ServerApp.root_dir={folder}",
        "--ip=127.0.0.1",
        "--LabApp.default_url=/lab/tree/00_start.ipynb",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        f"--port={port}",
    ]
    argv += [] if browser else ["--no-browser"]
    # A container's only user is root; Jupyter asks to be told. It listens on loopback and wants its token all the same.
    argv += ["--allow-root"] if os.geteuid() == 0 else []
    os.execv(sys.executable, argv)  # noqa: S606 - signals and exit code are JupyterLab's own


@app.command(epilog=EPILOG)
def clean(
    target: Annotated[
        str,
        typer.Option(
            "--target", metavar="STACK", help="Remove the target environment and caches of one stack."
        ),
    ] = "",
    everything: Annotated[bool, typer.Option("--all", help="Remove the whole workspace.")] = False,
    leftovers: Annotated[
        bool,
        typer.Option(
            "--leftovers",
            help="Find what other installations left on this machine; ours goes with --yes, for the rest commands are shown.",
        ),
    ] = False,
    machine: MachineOption = "auto",
    format_: Annotated[Form, typer.Option("--format", help="How leftovers are printed.")] = Form.TEXT,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; otherwise only what would go is shown.")] = False,
) -> None:
    """Remove what the runbook built: caches and old run folders by default. Shows first; removes with --yes."""
    from runbook.actions import cleaning

    work = _workspace()
    if leftovers:
        if target or everything:
            raise BadParameter("--leftovers beside --target or --all", "one of them", "leave the others out")
        _leftovers(machine, work, format_, yes)
        return
    found = cleaning.leftovers(work, target, everything=everything)
    for path, mib in found:
        typer.echo(f"{mib:8} MiB  {path}")
    if not found:
        typer.echo("nothing to remove")
    elif not yes:
        typer.echo("shown only; add --yes to remove")
    else:
        cleaning.remove(work, [path for path, _ in found])
        typer.echo("removed")


def _leftovers(machine: str, work: Any, form: Form, yes: bool) -> None:
    from runbook import connect, pins
    from runbook import leftovers as searching

    first = connect.cached(connect.probe(machine, "auto", "", work))
    # A cache in the home folder is judged by what all environments here hold.
    others = (
        [connect.probe("live", name, "", work) for name in pins.names()] if first.machine == "live" else []
    )
    hosts = [first, *(connect.cached(one) for one in others if one.has_target and one.stack != first.stack)]
    found = searching.find(hosts)
    if form is Form.JSON:
        typer.echo(searching.as_json(found), nl=False)
    else:
        if banner := connect.banner(first.host):
            typer.echo(report.wrapped(banner))
        typer.echo(searching.as_text(found))
    if yes and first.machine == "live":
        for path in searching.remove(work, found):
            typer.echo(f"removed    {path}", err=form is Form.JSON)


def _host(machine: str, stack: str, target: str, model: str) -> Any:
    from runbook import connect

    work = _workspace()
    if not model:
        return connect.probe(machine, stack, target, work)
    from runbook.actions.model_files import folder_of_name

    return connect.probe(machine, stack, target, work, folder_of_name(work, model))


def _workspace() -> Any:
    from runbook.workspace import workspace

    return workspace()


def _pairs(words: Sequence[str]) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise BadParameter(f"-p {word!r} is no parameter", "name=value", "for example -p deadline_s=600")
        if name in pairs:
            raise BadParameter(f"-p {name} is given twice", "each parameter once", "leave one out")
        pairs[name] = value
    return pairs


def main() -> NoReturn:
    """Run the command line; every end has one of the documented exit codes."""
    try:
        code = app(standalone_mode=False) or 0
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except RunbookError as why:
        typer.echo(f"runbook: {why}", err=True)
        sys.exit(why.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except OSError as why:
        if why.errno not in (errno.ENOSPC, errno.EDQUOT):
            _ended_badly(why)
        typer.echo(f"runbook: no room is left to write {why.filename or 'a file'}\n  do: df -h", err=True)
        code = 1
    except Exception as why:  # noqa: BLE001 - the last line of defence: 4 tells a pipeline that the machine is not to blame
        _ended_badly(why)
    if code == 130:  # noqa: PLR2004 - typer makes it of a Ctrl-C without a word
        typer.echo("interrupted", err=True)
    sys.exit(code)


def _ended_badly(why: Exception) -> NoReturn:
    # typer's own usage errors carry a message for the user; anything else is a bug of ours.
    if hasattr(why, "format_message"):
        typer.echo(f"runbook: {why.format_message()}\n  do: runbook --help", err=True)
        sys.exit(2)
    import traceback

    traceback.print_exception(why)
    typer.echo("runbook: this is a bug of ours; please report it with the lines above", err=True)
    sys.exit(4)


if __name__ == "__main__":
    main()
