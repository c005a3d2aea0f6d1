"""``runbook claims``: what is said about this stack and what is so; ``verify`` asks the environments here again."""

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from runbook.errors import BadParameter
from runbook.forms import Form

if TYPE_CHECKING:
    from runbook.claims.ledger import Claim
    from runbook.claims.target import Environment

LIST = "list"


class _ListFirst(TyperGroup):
    """``runbook claims C093`` and ``runbook claims --layer cuda`` are ``runbook claims list ...``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command's name in front when none is given."""
        named = args[:1] and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [LIST, *args])


app = typer.Typer(
    cls=_ListFirst,
    help="What is said about serving Qwen3.5 with vLLM, what is so, and whether that still holds here: list, show, verify.",
    rich_markup_mode=None,
)


class PageForm(str, Enum):
    """How the list is printed; markdown is docs/claims.md."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


Ids = Annotated[
    list[str] | None, typer.Argument(metavar="[ID]...", help="Ids such as C093; all when none is named.")
]
LayerOption = Annotated[str, typer.Option("--layer", help="Only those of a layer, such as cuda or serving.")]
VerdictOption = Annotated[str, typer.Option("--verdict", help="Only those of a verdict, such as refuted.")]


@app.command(name=LIST)
def list_(
    ids: Ids = None,
    layer: LayerOption = "",
    verdict: VerdictOption = "",
    format_: Annotated[PageForm, typer.Option("--format", help="How the list is printed.")] = PageForm.TEXT,
) -> None:
    """List the claims by layer, each with its verdict."""
    from runbook.claims import render

    claims = _chosen(ids, layer, verdict)
    how = {PageForm.TEXT: render.listing, PageForm.JSON: render.json_text, PageForm.MARKDOWN: render.page}
    typer.echo(how[format_](claims).rstrip("\n"))


@app.command()
def show(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids such as C093.")],
    format_: Annotated[Form, typer.Option("--format", help="How the entries are printed.")] = Form.TEXT,
) -> None:
    """Show whole entries: claim, verdict, truth, evidence, sources, checks and probes."""
    from runbook.claims import render

    claims = _chosen(ids, "", "")
    if format_ is Form.JSON:
        typer.echo(render.json_text(claims), nl=False)
    else:
        typer.echo("\n\n".join(render.shown(one) for one in claims))


@app.command()
def verify(
    ids: Ids = None,
    target: Annotated[
        str, typer.Option("--target", metavar="PYTHON", help="Interpreter of the environment to ask.")
    ] = "",
    stack: Annotated[
        list[str] | None,
        typer.Option(
            "--stack",
            help="Ask the target of this stack; may be given several times. Default: every target here.",
        ),
    ] = None,
    layer: LayerOption = "",
    verdict: VerdictOption = "",
    every: Annotated[bool, typer.Option("--all", help="Print every reading, not only drifts.")] = False,
    format_: Annotated[Form, typer.Option("--format", help="How the outcome is printed.")] = Form.TEXT,
) -> None:
    """Ask every probe that can run here again. Exit code 1: a verdict drifted; 3: nothing could run."""
    from runbook.claims import render
    from runbook.claims import verify as verifying

    claims = _chosen(ids, layer, verdict)
    if not any(one.probes for one in claims):
        raise BadParameter(
            "none of these claims has a probe", "a claim that a machine can decide", "runbook claims show says what its evidence is"
        )  # fmt: skip
    ours, targets = _environments(target, stack or [])
    if not targets:
        typer.echo("no target is built here: only what needs none is asked (runbook env build)", err=True)
    # On stderr: the answer itself is the same whether a terminal looks on or not.
    asked = verifying.verify(claims, ours, targets, lambda line: typer.echo(line, err=True))
    if format_ is Form.JSON:
        typer.echo(render.verified_json(asked), nl=False)
    else:
        typer.echo(render.verified(asked, every=every))
    raise typer.Exit(verifying.exit_code(asked))


def _chosen(ids: Sequence[str] | None, layer: str, verdict: str) -> "tuple[Claim, ...]":
    from runbook.claims import ledger

    found = ledger.chosen(
        tuple(ids or ()),
        _member(ledger.Layer, layer, "--layer"),
        _member(ledger.Verdict, verdict, "--verdict"),
    )
    if not found:
        raise BadParameter("no claim is of that layer and verdict", "a pair that occurs", "runbook claims")
    return found


def _member(kind: Any, given: str, option: str) -> Any:
    try:
        return kind(given) if given else None
    except ValueError:
        raise BadParameter(
            f"{option} {given!r} is none", ", ".join(one.value for one in kind), "name one of these"
        ) from None


def _environments(target: str, stacks: Sequence[str]) -> "tuple[Environment, list[Environment]]":
    """This machine without a target, and the targets to ask.

    Raises:
        BadParameter: a target beside stacks, an interpreter or a stack that is not there.
    """
    from runbook import connect, pins
    from runbook.claims.target import environment
    from runbook.probes.live import LiveProbe
    from runbook.workspace import workspace

    work = workspace()
    if target and stacks:
        raise BadParameter("--target beside --stack", "one of the two", "leave the other out")
    ours = environment(LiveProbe(work), "")
    if target:
        python = connect.interpreter(target)
        return ours, [environment(LiveProbe(work, "", python), str(python))]
    built = [name for name in pins.names() if work.target_python(name).exists()]
    if missing := sorted({pins.buildable(name).name for name in stacks} - set(built)):
        raise BadParameter(
            f"no target of {missing[0]} is built here", "a stack with a target", f"runbook env build --stack {missing[0]}"
        )  # fmt: skip
    chosen = [name for name in built if not stacks or name in stacks]
    return ours, [environment(LiveProbe(work, name, work.target_python(name)), name) for name in chosen]


def explained(check_id: str) -> str:
    """What ``runbook explain`` adds below a check's page: the claims it has to do with; "" for none."""
    from runbook.claims import rows
    from runbook.report import wrapped

    said = [
        wrapped(claim, f"{name}  {verdict}: ", " " * 6)
        for name, verdict, claim in rows.explained_by(check_id)
    ]
    if not said:
        return ""
    return "\n".join(["", "## What is said about it", *said, "(what is so: runbook claims show ID)"]) + "\n"


__all__ = ["app", "explained"]
