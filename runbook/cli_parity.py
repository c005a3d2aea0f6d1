"""``runbook parity``: the served model's tokens and log-probabilities against transformers on the same checkpoint."""

import dataclasses
import json
import os
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from runbook.errors import BadParameter
from runbook.forms import Form

PROMPTS, TOKENS, DEADLINE_S = 22, 64, 900


class Dtype(str, Enum):
    """What a server computes in; auto is the checkpoint's."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


def parity(
    model: Annotated[
        str,
        typer.Option(
            "--model",
            help="Checkpoint to serve: a generated model's name, a folder or a hub id; default: the running server's, or the stack's.",
        ),
    ] = "",
    reference: Annotated[
        Path | None,
        typer.Option(
            "--reference",
            metavar="DIR",
            help="Checkpoint to compare with: what was trained; default: the model's folder.",
        ),
    ] = None,
    stack: Annotated[
        str, typer.Option("--stack", help="Name of a stack; auto takes the one that fits this machine.")
    ] = "auto",
    dtype: Annotated[
        Dtype,
        typer.Option("--dtype", help="What the server computes in; one that is started here is started so."),
    ] = Dtype.AUTO,
    url: Annotated[str, typer.Option("--url", help="A server elsewhere, instead of this workspace's.")] = "",
    api_key_env: Annotated[
        str, typer.Option("--api-key-env", metavar="NAME", help="Variable that holds the key of --url.")
    ] = "",
    prompts: Annotated[
        int, typer.Option("--prompts", min=1, max=PROMPTS, help="How many plain prompts.")
    ] = PROMPTS,
    tokens: Annotated[int, typer.Option("--tokens", min=4, max=512, help="Tokens of each answer.")] = TOKENS,
    format_: Annotated[Form, typer.Option("--format", help="How it is printed.")] = Form.TEXT,
) -> None:
    """Compare what is served with what was trained: tokens, log-probabilities, chat template; name the fault. Exit code 1: they differ.

    Asks this workspace's running server, or one that it starts and stops.
    """
    from runbook import parity as judging
    from runbook import workspace
    from runbook.actions import parity as asking

    if api_key_env and (not url or api_key_env not in os.environ):
        raise BadParameter(
            f"--api-key-env {api_key_env}: " + ("there is no such variable" if url else "without --url"),
            "the name of a variable that holds the key of --url",
            "export it, or leave the option out: this workspace's server has its own key",
        )
    work = workspace.workspace()

    def say(line: str) -> None:
        typer.echo(line, err=True)

    def asked(ctx: Any) -> Any:
        own = asking.ours(_reference(reference, ctx), dtype.value, prompts, tokens)
        if not url:
            return asking.measured(ctx, own)
        there = asking.Question(url, api_key_env, "", own.reference, dtype.value, prompts, tokens)
        return asking.measured(ctx, there)

    there = None if url else asking.running(work)
    if there is not None:
        _same("--stack", stack if stack != "auto" else there.stack, there.stack)
        _same("--model", model or there.model, there.model)
        _same("--dtype", dtype.value if dtype is not Dtype.AUTO else there.dtype, there.dtype)
        dtype = Dtype(there.dtype)
        found = asked(dataclasses.replace(_context(work, there.stack, there.model), python=there.python))
    elif url:
        found = asked(_context(work, stack, model))
    else:
        ctx = _context(work, stack, model)
        _reference(reference, ctx, made=True)
        with asking.served(ctx, dtype.value, say):
            found = asked(ctx)
    if format_ is Form.JSON:
        typer.echo(json.dumps(judging.as_json(found), ensure_ascii=False, indent=1))
    else:
        typer.echo(judging.as_text(found))
    raise typer.Exit(judging.EXIT[found.verdict])


def _context(work: Any, stack: str, model: str) -> Any:
    from runbook import connect, pins
    from runbook.actions import Context
    from runbook.actions.jobs import Owner
    from runbook.actions.model_files import folder_of_name

    chosen = pins.stack(connect.probe("live", stack, "", work).stack)
    name = model or chosen.model
    folder_of_name(work, name)  # refuses a name that is none before anything starts
    return Context(work, chosen, work.target_python(chosen.name), True, name, Owner.of(), DEADLINE_S)


def _reference(given: Path | None, ctx: Any, *, made: bool = False) -> Path:
    """The folder to compare with. ``made``: the model's own may not be there yet, it is generated before it is served."""
    from runbook.actions.model_files import folder_of

    folder = (given or folder_of(ctx)).expanduser().absolute()
    if not (folder / "config.json").is_file() and (given or not made):
        raise BadParameter(
            f"no config.json in {folder}",
            "the folder of a checkpoint to compare with",
            "name it with --reference",
        )
    return folder


def _same(option: str, asked: str, runs: str) -> None:
    if asked != runs:
        raise BadParameter(
            f"{option} {asked}: a server of this workspace runs already, with {runs}",
            "the server as it runs, or none",
            f"leave {option} out, or stop it: runbook stop",
        )
