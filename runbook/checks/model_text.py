"""MODEL: do text and tokens mean the same to the tokenizer, the chat template and the model?"""

import json

from runbook.checks.model_readings import EXAMINE, FETCH, judged
from runbook.model import Answer, Cost, Evidence, Fix, Layer, Risk, Source, check, fail, ok, warn
from runbook.parse.checkpoint import Checkpoint
from runbook.probe import Probe

ORIGINAL = Fix("Restore the tokenizer files of the original repository", ("runbook run 07_model",), Risk.DATA)
TEMPLATE = Fix(
    "Restore chat_template.jinja of the original repository, or name one with vLLM's --chat-template",
    risk=Risk.DATA,
)
ENDS = Fix(
    "Restore generation_config.json and tokenizer_config.json, or send stop_token_ids with each request",
    risk=Risk.DATA,
)
SOURCE_TEMPLATE = Source(
    "transformers: chat templates",
    "https://huggingface.co/docs/transformers/main/en/chat_templating",
    "2026-11-30",
)


@check(
    "MODEL-006",
    layer=Layer.MODEL,
    title="The tokenizer loads, gives text back unchanged, and its chat template renders",
    why="A foreign tokenizer class or a lost template shows as empty or endless answers, not as an error.",
    source=SOURCE_TEMPLATE,
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("MODEL-001",),
)
def tokenizer(host: Probe) -> Answer:
    """Round trips in English, Chinese and emoji; the template with thinking on and off; the end token against generation_config."""
    origin = "inside tokenizer_facts path={model}"
    facts = host.inside("tokenizer_facts", {"path": "{model}"})
    if "error" in facts:
        return fail(Evidence("error", str(facts["error"]), origin), fix=FETCH)
    try:
        given = json.loads(host.read_text("{model}/generation_config.json") or "{}")
    except ValueError:
        given = None
    ends = given.get("eos_token_id") if isinstance(given, dict) else None
    listed = ends if isinstance(ends, list) else [ends]
    seen = (
        Evidence("class", facts["class"], origin),
        Evidence(
            "texts that come back", f"{sum(facts['round_trips'])} of {len(facts['round_trips'])}", origin
        ),
        Evidence("end token", f"{facts['eos']} ({facts['eos_id']})", origin),
        Evidence(
            "generation_config ends at",
            ", ".join(str(each) for each in listed if each is not None) or "not given",
            "read {model}/generation_config.json",
        ),
        Evidence("template ends with", repr(facts["template"]["plain"][-32:]), origin),
    )
    if not all(facts["round_trips"]) or "assistant" not in facts["template"]["plain"]:
        return fail(*seen, fix=FETCH)
    if ends is None:
        return warn(
            *seen, reason="without generation_config.json the server samples and stops by its own defaults"
        )
    return ok(*seen) if facts["eos_id"] in listed else fail(*seen, fix=FETCH)


@check(
    "MODEL-013",
    layer=Layer.MODEL,
    title="The tokenizer fits the model: a row for each token, a token for each role",
    why="A token without a row in the embedding kills the worker at its first use; one of another model is read as another word.",
    source=Source(
        "tokenizers: the parts of tokenizer.json",
        "https://huggingface.co/docs/tokenizers/components",
        "2026-11-30",
    ),
    requires=("MODEL-001",),
)
def fits(host: Probe) -> Answer:
    """tokenizer.json read as data: ids, merges, special tokens; against vocab_size and the ids in config.json."""
    return judged(host, "tokenizer", "tokenizer", _tokens, ORIGINAL)


def _pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == len(("token", "id"))


def _tokens(found: Checkpoint) -> tuple[Evidence, ...]:
    roles = found.table("tokenizer", "roles")
    named = [f"{role} {pair[0]} ({pair[1]})" for role, pair in roles.items() if _pair(pair)]
    return (
        Evidence("class", found.value("tokenizer", "class") or "not named", EXAMINE),
        Evidence("tokens", found.value("tokenizer", "tokens"), EXAMINE),
        Evidence("rows in the model", found.value("config", "vocabulary"), EXAMINE),
        Evidence("roles", ", ".join(named) or "none", EXAMINE),
    )


@check(
    "MODEL-014",
    layer=Layer.MODEL,
    title="The chat template is there and renders, with thinking on and off",
    why="A lost template refuses every chat; a broken one raises on a user's first message, or hides the words from the model.",
    source=SOURCE_TEMPLATE,
    requires=("MODEL-001",),
)
def renders(host: Probe) -> Answer:
    """Eight short conversations, rendered in a sandbox as transformers does it: thinking, system, tools, Chinese, no user."""
    return judged(host, "template", "template", _template, TEMPLATE)


def _template(found: Checkpoint) -> tuple[Evidence, ...]:
    ends = found.table("template", "ends")
    return (
        Evidence("taken from", found.value("template", "from"), EXAMINE),
        Evidence("thinking, when not asked for", found.value("template", "thinking"), EXAMINE),
        Evidence("a chat ends with", repr(str(ends.get("default", ""))[-40:]), EXAMINE),
        Evidence("a turn ends with", found.value("template", "turn"), EXAMINE),
        Evidence("tools are shown to the model", found.value("template", "tools"), EXAMINE),
        Evidence("no user message", _no_user(ends.get("no user")), EXAMINE),
    )


def _no_user(end: object) -> str:
    return str(end) if str(end).startswith("raises") else "is rendered" if end else "not known"


@check(
    "MODEL-015",
    layer=Layer.MODEL,
    title="An answer ends where the chat template ends a turn",
    why="If no end token is the one that closes a turn, answers run on into an invented next question.",
    source=Source(
        "Unsloth: Qwen3.5, end tokens and generation_config",
        "https://unsloth.ai/docs/models/qwen3.5.md",
        "2026-11-30",
    ),
    requires=("MODEL-013", "MODEL-014"),
)
def ends(host: Probe) -> Answer:
    """The token behind a rendered answer, against generation_config.json, config.json and the tokenizer's eos_token."""
    return judged(host, "generation", "generation", _ends, ENDS)


def _ends(found: Checkpoint) -> tuple[Evidence, ...]:
    listed = found.part("generation").get("ends")
    return (
        Evidence("a turn ends with", found.value("generation", "turn"), EXAMINE),
        Evidence("its id", found.value("generation", "turn_id"), EXAMINE),
        Evidence(
            "answers end at",
            ", ".join(map(str, listed)) if isinstance(listed, list) and listed else "none",
            EXAMINE,
        ),
        Evidence("given by", found.value("generation", "ends_from"), EXAMINE),
        Evidence("tokenizer's end", found.value("generation", "tokenizer_end"), EXAMINE),
    )


CHECKS = (tokenizer, fits, renders, ends)
