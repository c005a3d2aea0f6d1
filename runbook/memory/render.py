"""A plan as text with one chart, as JSON, and the chart as SVG. 80 columns; GiB are 2**30 bytes."""

import html
import json
from collections.abc import Sequence
from dataclasses import dataclass

from runbook.memory.overhead import GIB
from runbook.memory.plan import CPU, Change, Placement, Plan, outside

WIDTH = 72
LABEL = 12


@dataclass(frozen=True)
class Part:
    """One piece of the bar: a letter for text, a colour for SVG, a name, bytes."""

    letter: str
    colour: str
    name: str
    bytes: int


def parts(plan: Plan) -> tuple[Part, ...]:
    """The card from left to right; their sum is its memory, or more where the plan does not fit."""
    extra = plan.overhead
    spent = plan.resident.total + (extra.peak + extra.non_torch if extra else 0)
    cache = max(0, plan.blocks * plan.cut.pool)
    state = min(cache, plan.state_bytes)
    graphs = outside(plan) + (extra.graphs_counted if extra else 0)
    free = plan.device.memory - spent - cache - graphs
    return tuple(
        one
        for one in (
            Part("W", "#4c78a8", "weights", plan.resident.total),
            Part("a", "#f58518", "activations, libraries", spent - plan.resident.total),
            Part("K", "#54a24b", "KV cache", cache - state),
            Part("S", "#b279a2", "recurrent state", state),
            Part("g", "#e45756", "CUDA context, graphs", graphs),
            Part(".", "#d9d9d9", "free", max(0, free)),
        )
        if one.bytes > 0
    )


def bar(plan: Plan) -> list[str]:
    """The stacked bar as one line of letters, and its key. A part that takes memory has at least one letter."""
    shown = parts(plan)
    total = max(plan.device.memory, sum(one.bytes for one in shown))
    cells = [max(1, round(one.bytes / total * WIDTH)) for one in shown]
    cells[cells.index(max(cells))] += WIDTH - sum(cells)
    lines = ["|" + "".join(one.letter * count for one, count in zip(shown, cells, strict=True)) + "|"]
    if total > plan.device.memory:
        at, words = round(plan.device.memory / total * WIDTH) + 1, "here the memory ends"
        lines.append(f"{' ' * at}^ {words}" if at < WIDTH // 2 else f"{words} ^".rjust(at + 1))
    line = ""
    for one in shown:
        word = f"{one.letter} {one.name} {_gib(one.bytes)}"
        if line and len(line) + len(word) + 3 > WIDTH:
            lines.append(f" {line}")
            line = ""
        line += ("   " if line else "") + word
    return [*lines, f" {line} GiB"]


def text(
    plan: Plan,
    name: str,
    changes: Sequence[Change] = (),
    places: Sequence[Placement] = (),
    want: int | None = None,
) -> str:
    """The whole answer for a reader."""
    ask, cut, extra = plan.ask, plan.cut, plan.overhead
    choice = ask.choice
    device = f"{plan.device.name or plan.device.kind}, {_gib(plan.device.memory)} GiB"
    rows = [
        ("model", name),
        ("on", f"{device}; vLLM {ask.release}, --gpu-memory-utilization {ask.utilization:g}" + (f", tensor parallel {choice.tensor_parallel}" if choice.tensor_parallel > 1 else "")),
        ("verdict", f"{'fits' if plan.fits else 'DOES NOT FIT'}; {plan.binding} binds: {plan.why}"),
        ("", ""),
        ("weights", _sum(plan)),
        ("start", _start(plan)),
        ("cache", f"{_gib(max(0, plan.available))} GiB: {plan.blocks:,} blocks of {cut.block_size:,} tokens, {cut.pool / 2**20:.2f} MiB each"),
        ("a sequence", _sequence(plan)),
        ("kv_tokens", f"{plan.kv_tokens:,}, the 'KV cache size' of the log" + _understated(plan)),
        ("concurrency", f"{plan.concurrency:,.2f} sequences of {plan.max_model_len:,} tokens; at most {plan.most_sequences:,} short ones"),
        ("longest", f"--max-model-len {plan.longest:,} would still start" if plan.longest else "no length would start"),
        ("limits", f"--max-num-seqs {ask.max_num_seqs:,}, --max-num-batched-tokens {ask.max_num_batched_tokens:,}" + ("" if plan.device.kind == CPU else ", eager" if ask.eager else f"; graphs about {_gib(extra.graphs if extra else 0)} GiB {'inside' if plan.rule.graphs_counted else 'outside'} the share")),
    ]  # fmt: skip
    if want:
        longest = plan.longest_of(want)
        rows.append(
            (
                f"want {want:,}",
                f"at once: each may be up to {longest:,} tokens long"
                if longest
                else "at once: not even their states fit",
            )
        )
    lines = [_row(label, value) for label, value in rows]
    lines += ["", *bar(plan)]
    if changes:
        lines += ["", "What one change would bring"]
        lines += [_changed(one) for one in changes]
    if places:
        lines += ["", "Ways to use the cards, most sequences of full length first"]
        lines += [
            f"  {one.replicas} x tensor parallel {one.parallel}: " + (f"{one.concurrency:,.1f} sequences, {one.replicas * one.plan.kv_tokens:,} kv_tokens" if one.plan.fits else f"does not fit ({one.plan.binding})")
            for one in places
        ]  # fmt: skip
    lines += [_row("note", one) for one in plan.notes]
    return "\n".join(lines) + "\n"


def as_dict(
    plan: Plan,
    name: str,
    changes: Sequence[Change] = (),
    places: Sequence[Placement] = (),
    want: int | None = None,
) -> dict[str, object]:
    """The same as values. Sizes in GiB; counts are counts."""
    extra, cut, resident = plan.overhead, plan.cut, plan.resident
    return {
        "schema": "memory-plan/1",
        "model": name,
        "vllm": plan.ask.release,
        "device": {"kind": plan.device.kind, "name": plan.device.name, "memory_gib": _number(plan.device.memory)},
        "fits": plan.fits,
        "binding": plan.binding,
        "why": plan.why,
        "kv_tokens": plan.kv_tokens,
        "kv_tokens_capacity": plan.capacity,
        "kv_gib": _number(max(0, plan.available)),
        "weights_gib": _number(resident.total),
        "weights": {part: _number(getattr(resident, part)) for part in ("language", "vision", "mtp", "rotary")},
        "block_size": cut.block_size,
        "num_blocks": plan.blocks,
        "groups": cut.groups,
        "page_bytes": cut.page,
        "state_padding": round(cut.padding, 4),
        "max_concurrency": round(plan.concurrency, 2),
        "max_model_len": plan.max_model_len,
        "longest_max_model_len": plan.longest,
        "want": {"sequences": want, "longest": plan.longest_of(want)} if want else None,
        "max_num_seqs": plan.ask.max_num_seqs,
        "most_sequences": plan.most_sequences,
        "max_num_batched_tokens": plan.ask.max_num_batched_tokens,
        "activations_gib": _number(extra.peak) if extra else None,
        "non_torch_gib": _number(extra.non_torch) if extra else None,
        "cuda_graphs_gib": _number(extra.graphs) if extra else None,
        "outside_gib": _number(outside(plan)),
        "chart": [{"part": one.name, "gib": _number(one.bytes)} for one in parts(plan)],
        "changes": [
            {"change": one.what, "cost": one.cost, "kv_tokens": one.plan.kv_tokens, "max_concurrency": round(one.plan.concurrency, 2), "fits": one.plan.fits}
            for one in changes
        ],
        "placements": [
            {"tensor_parallel": one.parallel, "replicas": one.replicas, "fits": one.plan.fits, "max_concurrency": round(one.concurrency, 2)}
            for one in places
        ],
        "notes": list(plan.notes),
    }  # fmt: skip


def json_text(
    plan: Plan,
    name: str,
    changes: Sequence[Change] = (),
    places: Sequence[Placement] = (),
    want: int | None = None,
) -> str:
    """``as_dict`` as indented JSON."""
    return json.dumps(as_dict(plan, name, changes, places, want), indent=1) + "\n"


def svg(plan: Plan, name: str) -> str:
    """The stacked bar as a picture of its own, with every number written beside its colour."""
    shown = parts(plan)
    total = max(plan.device.memory, sum(one.bytes for one in shown))
    width, left, at = 680, 20, 20.0
    body = [
        f'<text x="{left}" y="24" font-size="16">{html.escape(f"{name} on {plan.device.name or plan.device.kind}: {_gib(plan.device.memory)} GiB")}</text>'
    ]
    for one in shown:
        piece = one.bytes / total * width
        body.append(
            f'<rect x="{at:.1f}" y="40" width="{piece:.1f}" height="46" fill="{one.colour}"><title>{one.name} {_gib(one.bytes)} GiB</title></rect>'
        )
        at += piece
    for row, one in enumerate(shown):
        y = 112 + 22 * row
        body.append(
            f'<rect x="{left}" y="{y - 12}" width="14" height="14" fill="{one.colour}"/><text x="{left + 22}" y="{y}">{one.name}: {_gib(one.bytes)} GiB</text>'
        )
    last = 112 + 22 * len(shown)
    body.append(
        f'<text x="{left}" y="{last + 6}">{html.escape(f"{plan.kv_tokens:,} KV tokens in the log; {plan.concurrency:,.1f} sequences of {plan.max_model_len:,} tokens; {plan.binding} binds")}</text>'
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 {last + 26}" font-family="sans-serif" font-size="14" role="img" aria-label="{html.escape(name)} memory plan">{"".join(body)}</svg>\n'


def _gib(count: int) -> str:
    return f"{count / GIB:,.2f}"


def _number(count: int) -> float:
    return round(count / GIB, 4)


def _row(label: str, value: str) -> str:
    if not label:
        return ""
    words, lines, line = value.split(" "), [], ""
    for word in words:
        if line and len(line) + 1 + len(word) > 80 - LABEL:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join(
        f"{label if number == 0 else '':<{LABEL}}{each}" for number, each in enumerate([*lines, line])
    )


def _sum(plan: Plan) -> str:
    named = (
        ("language", plan.resident.language),
        ("vision", plan.resident.vision),
        ("MTP", plan.resident.mtp),
        ("rotary table", plan.resident.rotary),
    )
    inside = ", ".join(f"{word} {_gib(size)}" for word, size in named if size)
    return f"{_gib(plan.resident.total)} GiB ({inside})"


def _start(plan: Plan) -> str:
    extra = plan.overhead
    if extra is None:
        return (
            "the cache has a size of its own"
            if plan.ask.cache_bytes
            else "about 0.9 GiB of the worker's own memory"
        )
    which = "sampler" if extra.sampler >= extra.forward else "forward pass"
    return f"{_gib(extra.peak)} GiB of activations (the {which} of the profiling run), {_gib(extra.non_torch)} of CUDA libraries"


def _sequence(plan: Plan) -> str:
    cut, length = plan.cut, plan.max_model_len
    attention = cut.blocks_for(length) - cut.states
    if not cut.states:
        return f"{attention:,} blocks at {length:,} tokens"
    return f"{attention:,} blocks of attention at {length:,} tokens and {cut.states} of recurrent state at any length ({cut.padding:.1%} of a state's page is padding)"


def _understated(plan: Plan) -> str:
    if plan.capacity <= plan.kv_tokens or plan.rule.tokens != "groups":
        return ""
    return (
        f"; it divides by {plan.cut.groups} groups of layers, {plan.capacity:,} tokens of context really fit"
    )


def _changed(one: Change) -> str:
    gain = f"{one.plan.concurrency:,.1f} sequences"
    return f"  {one.what:<32}{gain:>20}   {one.cost}"
