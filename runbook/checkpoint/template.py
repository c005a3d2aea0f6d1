"""The chat template: is there one, does it render short conversations, and do the model's own tokens come out?"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from runbook.checkpoint import files, sandbox
from runbook.checkpoint.faults import Fault, few, line
from runbook.checkpoint.files import Unusable
from runbook.checkpoint.tokens import SETTINGS, Tokens

NAME, OLDER = "chat_template.jinja", "chat_template.json"
TAIL = 60  # letters of a rendering that are told
USER, SYSTEM, ANSWER = "What is the capital of France?", "Be brief.", "It is Paris."
CHINESE = "\N{CJK UNIFIED IDEOGRAPH-4F60}\N{CJK UNIFIED IDEOGRAPH-597D}\N{FULLWIDTH COMMA}\N{CJK UNIFIED IDEOGRAPH-4E16}\N{CJK UNIFIED IDEOGRAPH-754C}\N{IDEOGRAPHIC FULL STOP}"
# Conversations that every chat model must take, and words that must come out of them as they went in.
PLAIN = ("default", "thinking", "plain", "turn", "chinese")
SPOKEN = {"default": USER, "system": USER, "chinese": CHINESE, "turn": ANSWER}
TOOL_NAME = "get_time"
TOOL = {
    "type": "function",
    "function": {
        "name": TOOL_NAME,
        "description": "The time in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SPECIAL = re.compile(r"<\|[A-Za-z0-9_]{1,40}\|>")


def conversations(roles: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Name -> what the template is given. ``roles``: role -> token, as the tokenizer hands them on."""

    def asked(*messages: tuple[str, str], answer: bool = True, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - template variables
        turns = [{"role": role, "content": content} for role, content in messages]
        return {
            "messages": turns,
            "tools": None,
            "documents": None,
            "add_generation_prompt": answer,
            **roles,
            **more,
        }

    return {
        "default": asked(("user", USER)),
        "thinking": asked(("user", USER), enable_thinking=True),
        "plain": asked(("user", USER), enable_thinking=False),
        "turn": asked(("user", USER), ("assistant", ANSWER), answer=False),
        "system": asked(("system", SYSTEM), ("user", USER)),
        "chinese": asked(("user", CHINESE)),
        "tools": asked(("user", USER), tools=[TOOL]),
        "no user": asked(("system", SYSTEM)),
    }


def read(folder: Path, present: tuple[str, ...], tokens: Tokens | None) -> tuple[dict[str, Any], list[Fault]]:
    """(facts, faults). Facts: ``from``; ``ends``: conversation -> the end of its rendering; ``turn``: the token that ends one."""
    faults: list[Fault] = []
    sources = dict(_sources(folder, present, tokens, faults))
    if not sources:
        unread = any(fault.file in (NAME, OLDER) for fault in faults)
        none = Fault(
            "template/none", NAME, f"is not there, and {SETTINGS} has no chat_template: chats are refused"
        )
        return {}, faults if unread else [*faults, none]
    name, source = next(iter(sources.items()))
    others = [other for other, text in sources.items() if text != source]
    if others:
        faults.append(
            Fault(
                "template/two",
                name,
                f"is another template than that of {others[0]}; {name} is the one in use",
            )
        )
    rendered = sandbox.render(source, conversations(tokens.roles if tokens else {}))
    text = {key: said for key, (kind, said) in rendered.items() if kind == "text"}
    turn = _turn(text.get("turn", ""), tokens)
    facts = {
        "from": name,
        "ends": {
            key: said[-TAIL:] if kind == "text" else f"{kind}: {line(said)}"
            for key, (kind, said) in rendered.items()
        },
        "thinking": _thinking(text),
        "tools": TOOL_NAME in text.get("tools", ""),
        "turn": turn,
    }
    return facts, [*faults, *_faults(name, rendered, text, turn, tokens)]


def _sources(
    folder: Path, present: tuple[str, ...], tokens: Tokens | None, faults: list[Fault]
) -> Iterator[tuple[str, str]]:
    """Each template there is, the one that is used first: a file of its own goes before the key in the tokenizer's config."""
    for name in (NAME, OLDER):
        if name not in present:
            continue
        try:
            found = (
                files.text(folder, name, "template")
                if name == NAME
                else files.json_object(folder, name, "template").get("chat_template")
            )
        except Unusable as why:
            faults.append(why.fault)
            continue
        if isinstance(found, str):
            yield name, found
    given = tokens.settings.get("chat_template") if tokens else None
    if isinstance(given, list):  # several by name, of which a chat takes "default"
        named = {one.get("name"): one.get("template") for one in given if isinstance(one, dict)}
        given = named.get("default")
    if isinstance(given, str) and given:
        yield SETTINGS, given


def _thinking(text: Mapping[str, str]) -> str:
    """What a chat gets that does not say ``enable_thinking``: ``on``, ``off``, or ``no switch``."""
    if "thinking" not in text or "plain" not in text or text["thinking"] == text["plain"]:
        return "no switch"
    return {text["thinking"]: "on", text["plain"]: "off"}.get(text.get("default", ""), "neither")


def _turn(text: str, tokens: Tokens | None) -> str:
    """The special token that follows an assistant's answer; "" where none does, or the tokens are not known."""
    after = text.rpartition(ANSWER)[2].lstrip()
    fits = [token for token in (tokens.added if tokens else ()) if token and after.startswith(token)]
    return max(fits, key=len, default="")


def _faults(
    name: str,
    rendered: Mapping[str, tuple[str, str]],
    text: Mapping[str, str],
    turn: str,
    tokens: Tokens | None,
) -> Iterator[Fault]:
    for key, (kind, said) in rendered.items():
        if kind in ("parse", "limit"):
            how = "does not parse: " if kind == "parse" else ""
            yield Fault(f"template/{kind}", name, f"{how}{line(said)} (conversation: {key})")
            return
    raising = [key for key in PLAIN if key not in text]
    if raising:
        said = line(rendered[raising[0]][1])
        yield Fault("template/raises", name, f"raises on a plain chat ({', '.join(raising)}): {said}")
        return
    if "system" not in text:
        yield Fault("template/system", name, f"raises on a system message: {line(rendered['system'][1])}")
    lost = [key for key, words in SPOKEN.items() if words not in text.get(key, words)]
    if lost:
        yield Fault("template/text", name, f"drops or changes the words of a message ({', '.join(lost)})")
    if _thinking(text) in ("no switch", "neither"):
        how = "enable_thinking changes nothing, or the default is a third form"
        yield Fault("template/thinking", name, f"has no switch for thinking: {how}")
    if tokens:
        yield from _marks(name, text, turn, tokens, told=not lost)


def _marks(name: str, text: Mapping[str, str], turn: str, tokens: Tokens, *, told: bool) -> Iterator[Fault]:
    """Special tokens in what was rendered: each must be one of the vocabulary, and one must end an answer."""
    strange = sorted({one for each in text.values() for one in SPECIAL.findall(each)} - set(tokens.ids))
    if strange:
        yield Fault(
            "template/token", name, f"writes tokens that the vocabulary does not have: {few(strange)}"
        )
    elif told and not turn:
        how = "so nothing tells the model where one ends"
        yield Fault("template/turn", name, f"puts no special token behind an answer, {how}")
