"""``runbook validate`` and ``runbook soak``: answers held against themselves, load against objectives, hours against memory."""

import json
import os
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from runbook.errors import ActionFailed, BadParameter
from runbook.forms import Form

IDS = ("SERVE-014", "SERVE-015", "SERVE-016", "SERVE-017")
DEADLINE_S = 900
MOST_LEVEL = 4096


class Generator(str, Enum):
    """Who puts the load on the server."""

    VLLM = "vllm"
    AIPERF = "aiperf"


class Restart(str, Enum):
    """What a soak does when the server dies."""

    NEVER = "never"
    ON_DEATH = "on-death"


StackOption = Annotated[
    str,
    typer.Option(
        "--stack", help="Name of a stack to serve where no server runs; auto takes the one that fits."
    ),
]
FormOption = Annotated[Form, typer.Option("--format", help="How findings are printed.")]


def validate(
    slo: Annotated[
        list[str] | None,
        typer.Option(
            "--slo",
            metavar="NAME=NUMBER",
            help="An objective, as tpot_ms=200, ttft_p99_ms=500, rps=50; may be given several times.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Canaries and one short load, as page 09 asks; about half a minute."),
    ] = False,
    steps: Annotated[
        str,
        typer.Option(
            "--steps",
            metavar="N,N,...",
            help="Requests at once, rising; default: 1, 2, 4 ... until it bends.",
        ),
    ] = "",
    rates: Annotated[
        str,
        typer.Option("--rates", metavar="R,R,...", help="Requests a second instead, rising: an open load."),
    ] = "",
    step_s: Annotated[
        float, typer.Option("--step-s", min=1, max=3600, help="About how many seconds each load is held.")
    ] = 10.0,
    input_len: Annotated[
        int, typer.Option("--input-len", min=0, help="Prompt tokens; 0: 64 on a CPU, 512 on a GPU.")
    ] = 0,
    output_len: Annotated[
        int,
        typer.Option("--output-len", min=0, help="Answer tokens, 2 or more; 0: 16 on a CPU, 128 on a GPU."),
    ] = 0,
    generator: Annotated[
        Generator,
        typer.Option(
            "--generator", help="aiperf: put the load at the knee by a second generator, too (installs it)."
        ),
    ] = Generator.VLLM,
    url: Annotated[
        str, typer.Option("--url", help="A server elsewhere, without /v1, instead of this workspace's.")
    ] = "",
    model: Annotated[
        str, typer.Option("--model", help="The model's name at --url; default: the first it lists.")
    ] = "",
    key_env: Annotated[
        str, typer.Option("--key-env", metavar="NAME", help="Variable that holds the key of --url.")
    ] = "",
    tokenizer: Annotated[
        Path | None,
        typer.Option("--tokenizer", metavar="DIR", help="Folder with the tokenizer of the model at --url."),
    ] = None,
    stack: StackOption = "auto",
    format_: FormOption = Form.TEXT,
) -> None:
    """Hold the server's answers and its speed against what they must be: canaries, a load that distrusts itself, objectives, the knee.

    Asks this workspace's running server, or one that it starts and stops.
    """
    from runbook.actions import validating
    from runbook.checks import measured
    from runbook.probes import told
    from runbook.serving import slo as words

    if output_len == 1:
        raise BadParameter(
            "--output-len 1", "2 or more: with one token there is no time between tokens", "leave it out"
        )
    if steps and rates:
        raise BadParameter("--steps beside --rates", "one of the two", "leave the other out")
    if quick and (steps or rates or generator is not Generator.VLLM):
        raise BadParameter(
            "--quick beside --steps, --rates or another --generator", "one short load", "leave one out"
        )
    asked = validating.Asked(
        words.read(slo or []), tuple(slo or ()), quick, _levels(steps, whole=True) or _levels(rates), bool(rates),
        input_len, output_len, step_s, generator.value if generator is not Generator.VLLM else "",
    )  # fmt: skip
    if not url and (model or key_env or tokenizer):
        raise BadParameter(
            "--model, --key-env or --tokenizer without --url", "all belong to --url", "leave them out"
        )
    if not url:
        _carried_out(stack, IDS, format_, lambda ctx: validating.Validate(ctx, asked))
    if tokenizer is None or not (tokenizer / "tokenizer_config.json").is_file():
        raise BadParameter(
            f"--url with the tokenizer {tokenizer}",
            "the folder of the served model's tokenizer",
            "name it with --tokenizer",
        )
    ctx = _context(stack)
    action = validating.Validate(ctx, asked, _endpoint(url, model, key_env), tokenizer)
    action.apply(_say)
    texts = {
        measured.place("load"): json.dumps({"server": "elsewhere", **action.facts}),
        measured.place("boot"): json.dumps({"server": "elsewhere"}),
    }
    _judged(told.ToldProbe(ctx.work, ctx.stack.name, ctx.python, texts), IDS, format_)


def _endpoint(url: str, model: str, key_env: str) -> Any:
    """The server elsewhere; its first model where none is named."""
    from runbook.actions import looking
    from runbook.endpoint import Endpoint

    if key_env and key_env not in os.environ:
        raise BadParameter(
            f"--key-env {key_env}: there is no such variable", "one that holds the key", "export it"
        )
    there = Endpoint(
        url.rstrip("/").removesuffix("/v1"), model, os.environ.get(key_env, "") if key_env else ""
    )
    if model:
        return there
    served = looking.served(there)
    if not served:
        raise ActionFailed(
            f"GET {there.url}/v1/models names no model", "a server that lists one", "name it with --model"
        )
    return Endpoint(there.url, served[0], there.key)


def _levels(text: str, *, whole: bool = False) -> tuple[float, ...]:
    """Rising levels of load, as "1,2,4"."""
    from runbook.parse import numbers

    found: list[float] = []
    for word in text.split(",") if text else ():
        value = numbers.whole(word) if whole else numbers.decimal(word.strip())
        if not value or value > MOST_LEVEL or (found and value <= found[-1]):
            raise BadParameter(
                f"{text!r} are no levels of load",
                f"rising numbers above 0, at most {MOST_LEVEL}",
                "for example 1,2,4,8",
            )
        found.append(float(value))
    return tuple(found)


def soak(
    hours: Annotated[
        float | None, typer.Option("--hours", min=0.001, help="How long; default: 72 hours.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option("--minutes", min=0.05, help="How long, in minutes.")
    ] = None,
    rate: Annotated[float, typer.Option("--rate", min=0.01, help="Requests a second.")] = 1.0,
    concurrency: Annotated[
        int, typer.Option("--concurrency", min=1, max=256, help="Requests at once, at most.")
    ] = 4,
    restart: Annotated[
        Restart, typer.Option("--restart", help="Whether a server that dies is started again.")
    ] = Restart.NEVER,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with the last soak of this workspace, as it was asked for."),
    ] = False,
    stack: StackOption = "auto",
    format_: FormOption = Form.TEXT,
) -> None:
    """Send steady load for hours or days and judge whether memory grows, requests fail or tokens stand still.

    Loads this workspace's running server, or one that it starts and stops. May be killed and resumed.
    """
    from runbook.actions import soaking

    if hours is not None and minutes is not None:
        raise BadParameter("--hours beside --minutes", "one of the two", "leave the other out")
    if resume and (hours is not None or minutes is not None):
        raise BadParameter("--resume goes on as it was asked for", "no other length", "leave the length out")
    length_h = minutes / 60 if minutes is not None else hours if hours is not None else 72.0
    if length_h > soaking.MOST_HOURS:
        raise BadParameter(
            f"{length_h:g} hours",
            f"at most {soaking.MOST_HOURS}",
            "soak again after it: each has its own record",
        )
    orders = soaking.Orders(length_h * 3600, rate, concurrency, restart.value)
    _carried_out(stack, ("SERVE-018",), format_, lambda ctx: soaking.Soak(ctx, orders, resume=resume))


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _context(stack: str) -> Any:
    """The running server's context, else that of the stack that was named or fits.

    Raises:
        BadParameter: a server of another stack runs.
        ActionFailed: one runs that is not ready.
    """
    from runbook import connect, pins, workspace
    from runbook.actions import Context
    from runbook.actions import parity as serving
    from runbook.actions.jobs import Owner

    work = workspace.workspace()
    there = serving.running(work)
    if there is not None and stack not in ("auto", there.stack):
        raise BadParameter(
            f"--stack {stack}: a server of this workspace runs already, with {there.stack}",
            "the server as it runs, or none",
            "leave --stack out, or stop it: runbook stop",
        )
    chosen = pins.stack(there.stack if there else connect.probe("live", stack, "", work).stack)
    python = there.python if there else work.target_python(chosen.name)
    return Context(work, chosen, python, True, there.model if there else chosen.model, Owner.of(), DEADLINE_S)


def _carried_out(stack: str, ids: tuple[str, ...], form: Form, action: Any) -> NoReturn:
    """The action on the running server, or on one of our own for as long as it takes; then its checks and the exit code."""
    import contextlib

    from runbook import connect
    from runbook.actions import parity as serving

    ctx = _context(stack)
    chore = action(ctx)
    with contextlib.nullcontext() if serving.running(ctx.work) else serving.served(ctx, "auto", _say):
        chore.apply(_say)
        _judged(connect.probe("live", ctx.stack.name, str(ctx.python), ctx.work), ids, form)


def _judged(host: Any, ids: tuple[str, ...], form: Form) -> NoReturn:
    from runbook import connect, engine, report
    from runbook.checks import ALL
    from runbook.model import Cost

    asked = connect.cached(host)
    findings = engine.run(engine.select(ALL, ids, Cost.SLOW), ALL, asked)
    if form is Form.JSON:
        typer.echo(report.json_text(findings), nl=False)
    else:
        printed = "\n".join(report.text(one, connect.places(asked)) for one in findings)
        typer.echo(f"{printed}\n{report.ending(findings, printed, connect.places(asked))}")
    raise typer.Exit(engine.exit_code(findings))
