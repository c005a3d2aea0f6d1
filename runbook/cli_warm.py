"""``runbook warm-up`` and ``runbook limits``: make a server steady, and name what binds it under load."""

import dataclasses
import os
from typing import Annotated, Any

import typer

from runbook.errors import ActionFailed, BadParameter
from runbook.forms import Form
from runbook.model import Check, Finding

UrlOption = Annotated[
    str, typer.Option("--url", help="A server elsewhere, without /v1, instead of this workspace's.")
]
ModelOption = Annotated[
    str, typer.Option("--model", help="The model's name at --url; default: the first it lists.")
]
KeyOption = Annotated[
    str, typer.Option("--key-env", metavar="NAME", help="Variable that holds the key of --url.")
]
FormOption = Annotated[Form, typer.Option("--format", help="How findings are printed.")]


def warm_up(
    cap: Annotated[
        float, typer.Option("--cap", min=5, max=3600, help="Seconds after which no further round begins.")
    ] = 120.0,
    url: UrlOption = "",
    model: ModelOption = "",
    key_env: KeyOption = "",
    format_: FormOption = Form.TEXT,
) -> None:
    """Send every kind of request in rounds until waits stop falling and nothing is compiled; say what the first user would have waited.

    Warms this workspace's running server, or the one at --url, whose log cannot be looked at.
    """
    from runbook.actions.warming import WarmUp
    from runbook.checks import warming

    ctx, endpoint = _asked(url, model, key_env)
    action = WarmUp(ctx, endpoint, cap)
    action.apply(_say)
    if format_ is Form.TEXT:
        typer.echo(_table(action.facts))
    _judged(ctx, warming.CHECKS, "warm", action.facts if endpoint else None, format_)


def limits(
    seconds: Annotated[float, typer.Option("--seconds", min=3, max=3600, help="How long to watch.")] = 20.0,
    url: UrlOption = "",
    model: ModelOption = "",
    key_env: KeyOption = "",
    format_: FormOption = Form.TEXT,
) -> None:
    """Watch a server under the load it has and name the limit that binds it, with the flag that moves it. Sends nothing.

    An idle server gets no advice.
    """
    from runbook.actions.gauging import WatchLimits
    from runbook.checks import binding

    ctx, endpoint = _asked(url, model, key_env)
    action = WatchLimits(ctx, endpoint, seconds)
    action.apply(_say)
    _judged(ctx, binding.CHECKS, "limits", action.facts if endpoint else None, format_)


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _asked(url: str, model: str, key_env: str) -> tuple[Any, Any]:
    """The context, and the endpoint of ``--url`` (None: the workspace's own server)."""
    from runbook import connect, pins, workspace
    from runbook.actions import Context, looking
    from runbook.actions import parity as serving
    from runbook.actions.jobs import Owner
    from runbook.endpoint import Endpoint

    if (model or key_env) and not url:
        raise BadParameter("--model or --key-env without --url", "both belong to --url", "leave them out")
    if key_env and key_env not in os.environ:
        raise BadParameter(
            f"--key-env {key_env}: there is no such variable", "one that holds the key", "export it"
        )
    work = workspace.workspace()
    there = None if url else serving.running(work)
    if there is None and not url:
        raise ActionFailed(
            "no server of this workspace runs", "one that runs", "runbook serve, or name one with --url"
        )
    stack = pins.stack(there.stack if there else connect.probe("live", "auto", "", work).stack)
    python = there.python if there else work.target_python(stack.name)
    ctx = Context(work, stack, python, True, there.model if there else stack.model, Owner.of(), 0)
    if not url:
        return ctx, None
    bare = url.rstrip("/").removesuffix("/v1")
    endpoint = Endpoint(bare, model, os.environ.get(key_env, "") if key_env else "")
    if not model:
        served = looking.served(endpoint)
        if not served:
            raise ActionFailed(
                f"GET {bare}/v1/models names no model", "a server that lists one", "name it with --model"
            )
        endpoint = Endpoint(bare, served[0], endpoint.key)
    return ctx, endpoint


def _judged(
    ctx: Any, checks: tuple[Check, ...], kind: str, elsewhere: dict[str, Any] | None, form: Form
) -> None:
    """Judge, print and end. What was measured ``elsewhere`` lies in no workspace; it is judged as it is."""
    from runbook import connect, engine, report
    from runbook.checks import ALL

    host = connect.cached(
        connect.probe("live", ctx.stack.name, "" if elsewhere else str(ctx.python), ctx.work)
    )
    if elsewhere is None:
        findings = [one for one in engine.run(checks, ALL, host) if one.id in {each.id for each in checks}]
    else:
        findings = _elsewhere(checks, ctx, kind, elsewhere)
    if form is Form.JSON:
        typer.echo(report.json_text(findings), nl=False)
    else:
        printed = "\n".join(report.text(one, connect.places(host)) for one in findings)
        typer.echo(f"{printed}\n{report.ending(findings, printed, connect.places(host))}")
    raise typer.Exit(engine.exit_code(findings))


def _elsewhere(checks: tuple[Check, ...], ctx: Any, kind: str, facts: dict[str, Any]) -> list[Finding]:
    """Findings on a server that no workspace knows: the checks read ``facts`` where they would read its files."""
    import json

    from runbook import engine
    from runbook.checks import measured
    from runbook.probes.live import LiveProbe

    class Told(LiveProbe):
        def read_text(self, path: str) -> str | None:
            told = {
                measured.place(kind): {"server": "elsewhere", **facts},
                measured.place("boot"): {"server": "elsewhere"},
            }
            return json.dumps(told[path]) if path in told else super().read_text(path)

    host = Told(ctx.work, ctx.stack.name, None)
    alone = [dataclasses.replace(one, requires=(), needs_target=False) for one in checks]
    return [engine.judge(one, host, {}) for one in alone]


def _table(facts: dict[str, Any]) -> str:
    """What each shape's first request waited, and what it waits since."""
    wide = max(len(row["name"]) for row in facts["shapes"])
    lines = [f"{'waited for the first token (s)':{wide}}   first  steady  first/steady"]
    lines += [_row(row, wide) for row in facts["shapes"]]
    lines += [f"{name:{wide}}   not served: {why[:70]}" for name, why in facts["refused"].items()]
    lines.append(f"{'kinds never sent before':{wide}}")
    lines += [_row(row, wide) for row in facts["new"]["kinds"]]
    return "\n".join(lines) + "\n"


def _row(row: dict[str, Any], wide: int) -> str:
    times = f"{row['first_s'] / row['steady_s']:13.2f}" if row["steady_s"] else ""
    return f"{row['name']:{wide}}  {row['first_s']:6.3f}  {row['steady_s']:6.3f} {times}"
