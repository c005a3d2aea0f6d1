"""``runbook rollout`` and ``runbook normalize-prompt``: is a server ready for RL rollouts; what half-width marks change in a prompt."""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from runbook.errors import ActionFailed, BadParameter
from runbook.forms import Form
from runbook.model import Check, Finding, Verdict

PARITY = "SERVE-010"
IDS = ("SERVE-021", "SERVE-022", "SERVE-023")
DEADLINE_S = 900


def rollout(
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Groups and the batch alone, a few seconds; nothing is put to sleep or reloaded."
        ),
    ] = False,
    new_weights: Annotated[
        Path | None,
        typer.Option(
            "--new-weights",
            metavar="DIR",
            help="A checkpoint of the same model to reload from and back; default: a generated model's sibling, else the same weights.",
        ),
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=2, max=64, help="Samples of each prompt.")] = 8,
    tokens: Annotated[int, typer.Option("--tokens", min=4, max=512, help="Tokens of each answer.")] = 32,
    url: Annotated[
        str, typer.Option("--url", help="A server elsewhere, instead of this workspace's; it is only asked.")
    ] = "",
    model: Annotated[str, typer.Option("--model", help="The name that the server at --url serves.")] = "",
    key_env: Annotated[
        str, typer.Option("--key-env", metavar="NAME", help="Variable that holds the key of --url.")
    ] = "",
    format_: Annotated[Form, typer.Option("--format", help="How it is printed.")] = Form.TEXT,
) -> None:
    """Is the served model ready to generate RL rollouts? Groups with log-probabilities, what the batch changes, shared prefixes, sleep, reload.

    Asks this workspace's running server (the whole of it wants one started with --profile rl-rollout), or the one at --url.
    """
    from runbook.actions import rollouts

    asked = rollouts.Asked(samples, 16 if quick else tokens, 0 if quick else 4, quick=quick)
    if url:
        facts, findings = _elsewhere(url, model, key_env, asked, new_weights)
    else:
        if model or key_env:
            raise BadParameter(
                f"{'--model' if model else '--key-env'} without --url",
                "this workspace's server has its own name and key",
                "leave it out, or name a server with --url",
            )
        facts, findings = _ours(asked, new_weights)
    _print(facts, findings, format_)


def _say(line: str) -> None:
    typer.echo(line, err=True)


def _ours(asked: Any, new_weights: Path | None) -> tuple[dict[str, Any], list[Finding]]:
    from runbook import connect, engine, measured, workspace
    from runbook.actions.rollouts import KIND, Rollouts
    from runbook.checks import ALL

    work = workspace.workspace()
    ctx = _context(work)
    Rollouts(ctx, asked, new_weights).apply(_say)
    facts = json.loads(measured.path(work, KIND).read_text(encoding="utf-8"))
    host = connect.cached(connect.probe("live", ctx.stack.name, str(ctx.python), work))
    names = IDS[:2] if asked.quick else (PARITY, *IDS)
    chosen = tuple(one for one in ALL if one.id in names)
    # What these require is shown where it failed: a server that died meanwhile is told as that.
    found = engine.run(chosen, ALL, host)
    return facts, [one for one in found if one.id in names or one.verdict is Verdict.FAIL]


def _context(work: Any) -> Any:
    """What the running server was started with.

    Raises:
        ActionFailed: none runs, or it is not ready.
    """
    from runbook import pins
    from runbook.actions import Context
    from runbook.actions import parity as serving
    from runbook.actions.jobs import Owner

    there = serving.running(work)
    if there is None:
        raise ActionFailed(
            "no server of this workspace runs", "one that is ready", "runbook serve --profile rl-rollout"
        )
    return Context(work, pins.stack(there.stack), there.python, True, there.model, Owner.of(), DEADLINE_S)


def _elsewhere(
    url: str, model: str, key_env: str, asked: Any, new_weights: Path | None
) -> tuple[dict[str, Any], list[Finding]]:
    from runbook.actions import rollouts
    from runbook.checks import BY_ID
    from runbook.checks import rollout as judging
    from runbook.endpoint import Endpoint

    if new_weights is not None or not model:
        raise BadParameter(
            "--new-weights with --url" if new_weights else "--url without --model",
            "another's server is only asked, by the name of its model",
            "leave --new-weights out" if new_weights else "add --model NAME; GET /v1/models lists them",
        )
    if key_env and key_env not in os.environ:
        raise BadParameter(
            f"--key-env {key_env}: there is no such variable", "one that holds the key", "export it"
        )
    endpoint = Endpoint(url.rstrip("/"), model, os.environ.get(key_env, ""))
    facts = rollouts.measure(endpoint, asked, _say)
    judges = ((IDS[0], judging.groups, "groups"), (IDS[1], judging.batch, "batch"))
    return facts, [_finding(BY_ID[name], judging.of(judge, facts, part)) for name, judge, part in judges]


def _finding(one: Check, answer: Any) -> Finding:
    """The finding of a check about a server that no probe of ours reaches."""
    return Finding(
        one.id, one.layer, one.title, one.why, answer.verdict, answer.evidence, answer.fix, answer.reason,
        waived=False, duration_s=0.0, stack="", source=one.source,
    )  # fmt: skip


def _print(facts: dict[str, Any], findings: Sequence[Finding], form: Form) -> None:
    from runbook import engine, report
    from runbook.serving import rollout as judging

    ready = judging.ready({one.id: one.verdict for one in findings})
    lines = judging.told(facts)
    if form is Form.JSON:
        rows = [report.as_json(one) for one in findings]
        typer.echo(json.dumps({"schema": "rollout/1", "ready": ready, "lines": lines, "findings": rows}, ensure_ascii=False, indent=1))  # fmt: skip
    else:
        for one in findings:
            typer.echo(report.text(one))
        typer.echo("\n".join([*lines, f"ready for rollouts: {ready}"]))
    raise typer.Exit(engine.exit_code(findings))


def normalize_prompt(
    file: Annotated[Path, typer.Argument(help="A text file, or - for standard input.")],
    effect: Annotated[
        bool, typer.Option("--effect", help="Print what it changes, in characters and tokens, not the text.")
    ] = False,
    stack: Annotated[
        str,
        typer.Option("--stack", help="Stack whose environment counts tokens; auto takes the one that fits."),
    ] = "auto",
    model: Annotated[
        str, typer.Option("--model", help="Checkpoint whose tokenizer counts; default: the stack's.")
    ] = "",
    ask: Annotated[
        bool, typer.Option("--ask", help="With --effect: also ask the running server both, greedily.")
    ] = False,
    format_: Annotated[Form, typer.Option("--format", help="How the effect is printed.")] = Form.TEXT,
) -> None:
    """Replace full-width comma, full stop, exclamation and question mark by half-width ones. Not claimed to help; nothing else uses it.

    With --effect nothing is replaced: each line of the text is a prompt, and what would change is counted.
    """
    from runbook import prompt

    text = _text(file)
    if not effect:
        if ask:
            raise BadParameter("--ask without --effect", "--ask measures what a change does", "add --effect")
        typer.echo(prompt.normalize_prompt(text), nl=False)
        return
    lines = [line for line in text.splitlines() if line.strip()]
    changed = prompt.changes(text)
    facts: dict[str, Any] = {
        "prompts": len(lines), "characters": len(text), "changed": changed.total, "replaced": changed.replaced, "left": changed.left,
    }  # fmt: skip
    if lines:
        facts |= _counted(lines, stack, model)
    if ask and lines:
        facts |= _asked(lines)
    if format_ is Form.JSON:
        typer.echo(json.dumps(facts, ensure_ascii=False, indent=1))
        return
    typer.echo(f"{facts['changed']} of {facts['characters']} characters change in {len(lines)} prompts")
    typer.echo("left as they are: " + (" ".join(f"{mark} {n}" for mark, n in changed.left.items()) or "none"))
    if "before" in facts:
        typer.echo(
            f"{facts['before']} tokens before, {facts['after']} after, by the tokenizer of {facts['tokenizer']}"
        )
    if "answers" in facts:
        typer.echo(f"{facts['answers_differ']} of {facts['answers']} greedy answers differ")


def _text(file: Path) -> str:
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as why:
        raise BadParameter(
            f"{file}: {why}", "a text file in UTF-8", "name another, or - for standard input"
        ) from None


def _counted(lines: Sequence[str], stack: str, model: str) -> dict[str, Any]:
    """Tokens of the prompts as they are and normalised, by the checkpoint's tokenizer."""
    from runbook import connect, pins, workspace
    from runbook.actions.model_files import folder_of_name
    from runbook.probes.live import LiveProbe
    from runbook.prompt import normalize_prompt as normalized

    work = workspace.workspace()
    chosen = pins.stack(connect.probe("live", stack, "", work).stack)
    name = model or chosen.model
    folder = folder_of_name(work, name)
    texts = [*lines, *map(normalized, lines)]
    with tempfile.TemporaryDirectory() as held:
        written = Path(held) / "texts.json"
        written.write_text(json.dumps(texts), encoding="utf-8")
        probe = LiveProbe(work, chosen.name, work.target_python(chosen.name))
        found = probe.inside("count_tokens", {"path": str(folder), "texts": str(written)})
    if "error" in found:
        raise ActionFailed(
            f"tokens could not be counted with {name}: {found['error']}",
            "a target environment and a checkpoint with tokenizer.json",
            f"runbook env build --stack {chosen.name}, or name another with --stack and --model",
        )
    counts = found["counts"]
    return {"tokenizer": name, "before": sum(counts[: len(lines)]), "after": sum(counts[len(lines) :])}


def _asked(lines: Sequence[str]) -> dict[str, Any]:
    """Greedy answers to the prompts that change, as they are and normalised."""
    from runbook import workspace
    from runbook.actions.rollouts import own
    from runbook.prompt import normalize_prompt as normalized

    endpoint = own(workspace.workspace())[0]
    pairs = [(line, new) for line in lines if (new := normalized(line)) != line]
    replies = [
        (endpoint.complete(a, 32, temperature=0.0), endpoint.complete(b, 32, temperature=0.0))
        for a, b in pairs
    ]
    if failed := next((one for pair in replies for one in pair if one.error), None):
        raise ActionFailed(failed.error, "an answer to every prompt", "runbook status")
    return {"answers": len(pairs), "answers_differ": sum(a.text != b.text for a, b in replies)}
