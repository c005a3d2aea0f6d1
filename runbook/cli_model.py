"""``runbook model`` and ``runbook fetch``: what is known of a model, whether its files are right, and a download that can be trusted."""

import json
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from runbook import catalogue, consent
from runbook.catalogue import Model, Naming
from runbook.errors import BadParameter
from runbook.forms import Form

KIB, MIB = 1 << 10, 1 << 20
GB = 10**9
LABEL = 12
AT_MOST = 4  # differences shown
PARTS = (("text", "language"), ("vision", "vision"), ("mtp", "MTP"))


class Source(str, Enum):
    """Which hub is asked."""

    HF = "hf"
    MODELSCOPE = "modelscope"


SourceOption = Annotated[
    Source, typer.Option("--source", help="hf (HF_ENDPOINT names a mirror of it) or modelscope.")
]
RevisionOption = Annotated[
    str, typer.Option("--revision", help="Branch, tag or commit of the repository; default: its main one.")
]


def model(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]", help="A model of the list, a hub id or a folder; the list when left out."
        ),
    ] = "",
    revision: RevisionOption = "",
    source: SourceOption = Source.HF,
    stack: Annotated[
        str,
        typer.Option("--stack", help="Stack it is to be served with; auto takes the one for this machine."),
    ] = "auto",
    target: Annotated[
        str, typer.Option("--target", metavar="PYTHON", help="Interpreter it is to be served with.")
    ] = "",
    machine: Annotated[
        str, typer.Option("--machine", help="live, or recorded:NAME; then that machine's own checkpoint.")
    ] = "auto",
    format_: Annotated[Form, typer.Option("--format", help="How the answer is printed.")] = Form.TEXT,
) -> None:
    """Say which models there are, or of one what is known of it, its pitfalls, and whether its files are right; weights are not read."""
    if not name:
        typer.echo(_list_json() if format_ is Form.JSON else _table(), nl=False)
        return
    from runbook import connect, engine, hub, report
    from runbook.checks import ALL
    from runbook.model import Cost

    work = _workspace()
    text = format_ is Form.TEXT
    naming = Naming(name, catalogue.OTHER, "") if _is_folder(name) else catalogue.demanded(name)
    live = connect.machine_in_force(machine) == "live"
    if text:
        typer.echo(_known(naming.model) if naming.model else _other(naming, name), nl=False)
    about: dict[str, Any] = {"schema": "model/1", "name": name, "known": _as_json(naming.model) if naming.model else None}  # fmt: skip
    folder: Path | None = None
    try:
        folder, where = _folder(work, name, revision, source.value) if live else (None, {"machine": machine})
    except hub.Unreachable as why:
        where = {"unreachable": str(why)}
        if text:
            typer.echo("\n" + report.wrapped(" ".join(str(why).split()), "unknown   its files: ", " " * 10))
        else:
            typer.echo(json.dumps({**about, "examined": where, "findings": []}, indent=1))
        raise typer.Exit(3) from why
    where["differs"] = "; ".join(_differs(naming.model, folder))
    host = connect.probe(machine, stack, target, work, folder)
    if text:
        if banner := connect.banner(host):
            typer.echo(report.wrapped(banner))
        differs = where.pop("differs")
        places = ", ".join(f"{key} {value}" for key, value in where.items() if value)
        typer.echo("\n" + report.wrapped(places, "Examined  ", " " * 10))
        if differs:
            typer.echo(report.wrapped(f"from what is known of {name}: {differs}", "Differs   ", " " * 10))
    findings = engine.run(engine.select(ALL, ["MODEL"], Cost.STATIC), ALL, connect.cached(host))
    if text:
        brief = report.brief(findings, connect.places(host))
        typer.echo(brief)
        typer.echo(report.ending(findings, brief, connect.places(host)))
    else:
        rows = [report.as_json(one) for one in findings]
        typer.echo(json.dumps({**about, "examined": where, "findings": rows}, indent=1))
    raise typer.Exit(engine.exit_code(findings))


def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A hub id such as Qwen/Qwen3.5-4B.")],
    revision: RevisionOption = "",
    source: SourceOption = Source.HF,
    yes: Annotated[
        bool, typer.Option("--yes", help="Fetch; otherwise ask, or only show without a terminal.")
    ] = False,
) -> None:
    """Fetch a checkpoint into the workspace: a plan, a download that goes on where it stopped, every file compared with the hub's hash."""
    from runbook.actions.fetching import Fetch

    if _is_folder(name) or not catalogue.HUB_ID.fullmatch(catalogue.demanded(name).name):
        raise BadParameter(
            f"{name!r} is no repository of a hub",
            "OWNER/NAME, such as Qwen/Qwen3.5-4B",
            "runbook model lists the family; a folder is used where it lies",
        )
    one = Fetch(_workspace(), name, revision, source.value)
    for line in one.plan():
        typer.echo(line)
    if not one.there() and consent.given(yes):
        one.apply(typer.echo)


def _workspace() -> Any:
    from runbook.workspace import workspace

    return workspace()


def _is_folder(name: str) -> bool:
    return name.startswith(("/", ".", "~"))


def _folder(work: Any, name: str, revision: str, source: str) -> tuple[Path, dict[str, Any]]:
    """Where the files are, here or as a skeleton, and what is said of that; raises as ``hub.examine``."""
    from runbook import hub
    from runbook.actions.fetching import amount
    from runbook.actions.model_files import GENERATED, folder_of_name

    folder: Path = folder_of_name(work, name)
    if folder.is_dir() and not revision:
        kept = hub.sealed(folder)
        return folder, {"folder": str(folder), "commit": (kept["commit"] or kept["revision"]) if kept else ""}
    if name in GENERATED:
        raise BadParameter(f"{name} is not here yet: no {folder}", "a checkpoint", "runbook run 07_model")
    made = hub.examine(name, revision, work.skeletons / folder.name, source)
    found = made.listing
    return made.folder, {
        "hub": hub.shown(found.endpoint),
        "commit": found.commit or found.revision,
        "files": len(found.files),
        "size": amount(found.size),
        "read": amount(made.read),
        "gated": "its files want a token" if found.gated else "",
    }


def _differs(known: Model | None, folder: Path | None) -> list[str]:
    """What config.json says otherwise than the catalogue of this very model: a copy under its name, or an edited one."""
    if known is None or folder is None:
        return []
    try:
        there = json.loads((folder / "config.json").read_text(encoding="utf-8"))["text_config"]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # MODEL-001 and MODEL-019 say what is wrong with it
    wanted = known.config["text_config"]
    other = [key for key in wanted if isinstance(there, dict) and key in there and there[key] != wanted[key]]
    brief = [key for key in other if isinstance(wanted[key], int | float | str)]
    return [f"{key} {there[key]}, not {wanted[key]}" for key in brief[:AT_MOST]] or other[:AT_MOST]


def _list_json() -> str:
    rows = [_as_json(one) for one in catalogue.models()]
    return json.dumps({"schema": "models/1", "read": catalogue.READ, "models": rows}, indent=1) + "\n"


def _as_json(one: Model) -> dict[str, Any]:
    """The values of the summary with their sources, and the pitfalls."""
    values = {
        path: {"value": one.get(path), "inferred": one.inferred(path), "source": one.sources(path)}
        for path in (
            "parameters.total",
            "weights.tensor_bytes",
            "cache_derived.kv_bytes_per_token_bf16",
            "cache_derived.gdn_state_bytes_per_sequence",
            "context.native",
            "context.card_extensible_to",
            "minimum_versions.vllm",
            "minimum_versions.transformers",
            "chat_template.thinking_default",
            "vllm.reasoning_parser",
            "vllm.tool_call_parser",
            "licence",
            "release_date",
        )
    }
    return {
        "id": one.id,
        "size": one.size,
        "kind": one.kind,
        "tuning": one.tuning,
        "precision": one.precision,
        "publisher": one.publisher,
        "values": values,
        "sampling": one.get("sampling"),
        "variants": _variants(one),
        "pitfalls": [
            {
                "id": each.id,
                "title": each.title,
                "symptom": each.symptom,
                "fix": each.fix,
                "checks": each.checks,
            }
            for each in catalogue.of(one)
        ],
    }


def _variants(one: Model) -> list[str]:
    """Other models of the same size."""
    return [each.id for each in catalogue.models() if each.size == one.size and each.id != one.id]


def _table() -> str:
    """The family in 80 columns."""
    main = [one for one in catalogue.models() if not one.values.get("as")]
    lines = [
        f"Qwen3.5 as of {catalogue.READ}: {len(main)} sizes, {len(catalogue.models())} repositories, {main[0].get('licence')}",
        "",
        f"{'Qwen/Qwen3.5-':14}{'parameters':>11}{'bf16':>8}{'KV cache':>10}{'vLLM':>8}{'context':>9}  variants",
        f"{'':14}{'10^9':>11}{'GB':>8}{'KiB/token':>10}{'from':>8}",
    ]
    for one in main:
        also = [each.partition(f"-{one.size}-")[2] for each in _variants(one)]
        lines.append(
            f"{one.size:14}{one.get('parameters.total') / GB:11.2f}{one.get('weights.tensor_bytes') / GB:8.2f}"
            f"{one.get('cache_derived.kv_bytes_per_token_bf16') // KIB:10}{one.get('minimum_versions.vllm'):>8}"
            f"{one.get('context.native'):9,}  {', '.join(also[:2])}"
        )
        lines += [f"{'':62}{', '.join(also[at : at + 2])}" for at in range(2, len(also), 2)]
    lines += ["", "No suffix: post-trained, thinks or not as asked, sees pictures. NVFP4 is NVIDIA's.", "runbook model NAME says more of one; runbook fetch NAME brings it here."]  # fmt: skip
    return "\n".join(lines) + "\n"


def _other(naming: Naming, name: str) -> str:
    from runbook import report

    return report.wrapped(naming.why or f"{name}: its own files decide") + "\n"


def _known(one: Model) -> str:
    """What is known of one model, in 80 columns; a star marks what was reasoned, not read in its own files."""
    from runbook import report

    lines = [f"{one.id}: {one.tuning}, {one.precision}, {one.kind}, by {one.publisher}"]
    for label, text, paths in _facts(one):
        star = " *" if any(one.inferred(path) for path in paths) else ""
        lines.append(report.wrapped(f"{text}{star}", f"{label:{LABEL}}", " " * LABEL))
    if any(line.endswith(" *") for line in lines):
        lines.append("* reasoned from a sibling or a count, not read in its own files")
    lines += ["", "Pitfalls"]
    for each in catalogue.of(one):
        seen = f" [{' '.join(each.checks)}]" if each.checks else ""
        fix = f" Fix: {each.fix}." if each.fix else ""
        lines.append(report.wrapped(f"{each.title}.{fix}{seen}", f"{each.id}  ", " " * 5))
    return "\n".join(lines) + "\n"


def _facts(one: Model) -> Iterator[tuple[str, str, Sequence[str]]]:
    """(label, text, paths it rests on) of what is known; what is not is left out."""
    get = one.get
    counts = [(get(f"parameters.{part}"), word) for part, word in PARTS]
    parts = " + ".join(f"{count / GB:.2f} {word}" for count, word in counts if count)
    yield "parameters", f"{get('parameters.total'):,}" + (f" ({parts} x 10^9)" if parts else ""), ("parameters.total",)  # fmt: skip
    if size := get("weights.tensor_bytes"):
        yield "weights", f"{size / GB:.2f} GB", ("weights.tensor_bytes",)
    kv, state = get("cache_derived.kv_bytes_per_token_bf16"), get("cache_derived.gdn_state_bytes_per_sequence")  # fmt: skip
    yield "cache", f"{kv // KIB} KiB a token in bf16, and {state / MIB:.1f} MiB a sequence", ("cache_derived",)  # fmt: skip
    more = get("context.card_extensible_to")
    yield "context", f"{get('context.native'):,} tokens" + (f"; {more:,} with YaRN" if more else ""), ("context.native",)  # fmt: skip
    if vllm := get("minimum_versions.vllm"):
        yield "lowest", f"vLLM {vllm}; transformers {get('minimum_versions.transformers')} where used without vLLM", ("minimum_versions.vllm",)  # fmt: skip
    thinking = get("chat_template.thinking_default")
    if thinking is not None:
        yield "thinking", f"{'on' if thinking else 'off'} by default; {get('chat_template.switch')}", ("chat_template.thinking_default",)  # fmt: skip
    if parser := get("vllm.reasoning_parser"):
        yield "parsers", f"--reasoning-parser {parser}; --tool-call-parser {get('vllm.tool_call_parser')}", ("vllm.reasoning_parser",)  # fmt: skip
    for number, row in enumerate(get("sampling") or ()):
        values = ", ".join(f"{key} {value}" for key, value in row.items() if key not in ("for", "mode"))
        yield ("sampling" if number == 0 else ""), f"{row['mode']}, {row['for']}: {values}", (f"sampling.{number}",)  # fmt: skip
    if licence := get("licence"):
        yield "licence", licence, ("licence",)
    if also := _variants(one):
        yield "same size", " ".join(also), ()
