"""Launch profiles: which flags a server is started with for what it is to do, each with the number it came from. Pure.

``baseline`` is what a stack's manifest says and nothing else: no parser stands between the model and the client, which
is what checks, parity and a first look need. Every other profile starts from it. What a release does not have is left
out and said so; what the model or the memory decides is computed, never a constant out of an article.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from runbook.errors import BadParameter
from runbook.launch import Flag, Variable

BASELINE, FIRST_LIGHT, THROUGHPUT, LATENCY, RL_ROLLOUT, TEXT_ONLY = (
    "baseline", "first-light", "throughput", "latency", "rl-rollout", "text-only",
)  # fmt: skip
WHAT = {
    FIRST_LIGHT: "the shortest way to a first answer: nothing is compiled, short context",
    BASELINE: "what the pages start: the stack's own flags, text as the model writes it",
    THROUGHPUT: "most tokens a second: as many sequences at once as the cache holds",
    LATENCY: "the quickest tokens: few sequences at once, short steps",
    RL_ROLLOUT: "groups of samples for a trainer: its own sampling, prefixes shared, weights can be replaced",
    TEXT_ONLY: "a chat service without pictures: the tower's memory goes to longer contexts",
}
CUDA = "cuda"
EAGER, LENGTH, SEQUENCES, TOKENS = (
    "--enforce-eager", "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens",
)  # fmt: skip
# First light: long enough for a question and an answer.
SHORT = {CUDA: 4096, "cpu": 1024}
FIRST_FEW = 4
# Measured on an H200 (docs/measurements.md): 5.4 ms a token alone, 6.9 ms with 32 at once, 22 ms with 128.
QUICK_SEQUENCES = {CUDA: 32, "cpu": 4}
# There a prefill of 8,000 tokens took 0.21 s, which every decode beside it waits for when a step may hold them all.
QUICK_TOKENS = 2048
# A usual request is taken to use a quarter of the longest length.
SHARE_OF_LENGTH = 4
FEWEST = 16
# text-only: this many of the longest must fit at once.
LONG_AT_ONCE = 4
ROUND = 1024
OFF = json.dumps({"enable_thinking": False})


@dataclass(frozen=True)
class Served:
    """What is to be served, as far as flags depend on it.

    ``thinking`` is what the chat template does where a request does not say: ``on``, ``off``, ``no switch``, or ""
    where it could not be read. ``reasoning`` and ``tool`` are the parsers of its family, "" where none is known.
    ``positions`` is the longest sequence of its config, 0 for unknown; ``mtp`` whether it kept its MTP block.
    """

    model_type: str
    vision: bool
    hybrid: bool
    positions: int
    thinking: str
    reasoning: str
    tool: str
    mtp: bool


@dataclass(frozen=True)
class Room:
    """What the memory plan says: vLLM's own limit of sequences, how many fit at a length, how long so many may be."""

    default_sequences: int
    at_once: Callable[[int], float]
    longest_of: Callable[[int], int]


@dataclass(frozen=True)
class Planned:
    """Flags in their order, variables, and what was left out or could not be decided, a sentence each."""

    profile: str
    flags: tuple[Flag, ...]
    variables: tuple[Variable, ...]
    left: tuple[str, ...] = ()


@dataclass
class _Draft:
    """A plan while it is made."""

    device: str
    served: Served
    room: Room | None
    flags: dict[str, Flag]
    variables: list[Variable]
    left: list[str] = field(default_factory=list)

    def set(self, flag: str, value: str | int, why: str) -> None:
        """Add a flag, or give it another value in its old place."""
        self.flags[flag] = Flag(flag, str(value), why)

    def number(self, flag: str) -> int:
        """The value of a flag that is planned, 0 where it is not."""
        return int(self.flags[flag].value) if flag in self.flags else 0


def named(name: str) -> str:
    """The name itself.

    Raises:
        BadParameter: there is no such profile.
    """
    if name not in WHAT:
        raise BadParameter(f"no profile {name!r}", f"one of {', '.join(WHAT)}", "runbook serve --plan --profile baseline shows what one does")  # fmt: skip
    return name


def plan(
    profile: str,
    device: str,
    own: tuple[tuple[Flag, ...], tuple[Variable, ...]],
    served: Served,
    room: Room | None,
    known: Iterable[str],
    release: str,
) -> Planned:
    """The flags of a profile on a stack.

    ``own`` are flags and variables of the stack's manifest; ``room`` is None where the memory is not known; ``known`` are
    the option names of the release, by which flags that it lacks are left out.

    Raises:
        BadParameter: there is no such profile.
    """
    draft = _Draft(device, served, room, {one.flag: one for one in own[0]}, list(own[1]))
    rule = RULES[named(profile)]
    if rule is not None:
        rule(draft)
    names = frozenset(known)
    lacking = [flag for flag in draft.flags if flag not in names]
    for flag in lacking:
        del draft.flags[flag]
    left = (*draft.left, *(f"{flag} is left out: vLLM {release} does not have it" for flag in lacking))
    return Planned(profile, tuple(draft.flags.values()), tuple(draft.variables), left)


def _first_light(draft: _Draft) -> None:
    if EAGER not in draft.flags:
        draft.set(
            EAGER, "", "nothing is compiled: an H200 start took 74 s, not 93; tokens 6 to 8 times slower"
        )
    most = SHORT[draft.device]
    length = min(most, draft.served.positions or most)
    draft.set(LENGTH, length, "a question and an answer" if length == most else f"all its config has: {length:,}")  # fmt: skip
    draft.set(SEQUENCES, FIRST_FEW, "a first look asks little at once; less is profiled")


def _throughput(draft: _Draft) -> None:
    _sequences(draft)
    _split(draft)


def _latency(draft: _Draft) -> None:
    few = QUICK_SEQUENCES[draft.device]
    if draft.device == CUDA:
        draft.set(SEQUENCES, few, "H200: 6.9 ms a token with 32 at once, 22 ms with 128, 5.4 alone")
        draft.set(TOKENS, QUICK_TOKENS, "H200: beside 8,000 tokens of prefill a token waits 0.21 s")
        if draft.served.mtp:
            guess = json.dumps({"method": "mtp", "num_speculative_tokens": 1})
            draft.set(
                "--speculative-config", guess, "the recipe's one guessed token; 5 and more crashed (P08)"
            )
        else:
            draft.left.append("no speculative tokens: the checkpoint has no MTP block (P19)")
    else:
        draft.set(SEQUENCES, few, "each more at once slows every token of the others")
    _split(draft)


def _rl_rollout(draft: _Draft) -> None:
    _sequences(draft)
    draft.set(
        "--generation-config", "vllm", "the trainer samples: no top_k or top_p out of the checkpoint's file"
    )
    draft.set("--logprobs-mode", "processed_logprobs", "of the distribution that was sampled, temperature included")  # fmt: skip
    draft.set("--max-logprobs", -1, "20 is the most otherwise; trainers ask for more (TRL sets -1 too)")
    draft.set("--enable-prefix-caching", "", "a group's samples share their prompt; off by default for hybrids on 0.19.1")  # fmt: skip
    if draft.device == CUDA:
        draft.set("--enable-sleep-mode", "", "gives the card to the trainer between rollouts")
        draft.left.append(
            '--weight-transfer-config is the trainer\'s to name, such as \'{"backend": "nccl"}\' for TRL'
        )
    else:
        draft.left.append("--enable-sleep-mode is left out: no platform but a GPU's has it")
    why = "/sleep, /wake_up, /collective_rpc and others, without a key: loopback only"
    draft.variables.append(Variable("VLLM_SERVER_DEV_MODE", "1", why))


def _text_only(draft: _Draft) -> None:
    if draft.served.vision:
        draft.flags.pop("--limit-mm-per-prompt", None)
        draft.set("--language-model-only", "", "the vision tower is neither loaded nor profiled")
    least = draft.number(LENGTH)
    if draft.room is None:
        draft.left.append(f"{LENGTH} stays at {least:,}: how much memory there is, is not known here")
    else:
        fits = draft.room.longest_of(LONG_AT_ONCE) // ROUND * ROUND
        length = min(max(fits, least), draft.served.positions or least)
        limit = "its config's positions" if length == draft.served.positions else "the memory plan"
        draft.set(LENGTH, length, f"{limit}: {draft.room.at_once(length):,.1f} of that length fit at once")
    _split(draft)


def _sequences(draft: _Draft) -> None:
    """As many at once as the cache holds of usual ones, at most vLLM's own limit for the device."""
    if draft.room is None:
        draft.flags.pop(SEQUENCES, None)
        draft.left.append(f"{SEQUENCES} is vLLM's own: how much memory there is, is not known here")
        return
    usual = max(1, draft.number(LENGTH) // SHARE_OF_LENGTH)
    fits = draft.room.at_once(usual)
    count = max(FEWEST, min(int(fits), draft.room.default_sequences))
    limit = ", vLLM's own limit" if count == draft.room.default_sequences else ""
    draft.set(SEQUENCES, count, f"the cache holds {fits:,.0f} of {usual:,} tokens{limit}")


def _split(draft: _Draft) -> None:
    """Parsers: thinking and calls of tools come in fields of their own, where the family's parser and the template agree."""
    served = draft.served
    if not served.reasoning:
        draft.left.append(f"no parsers: none is on record for model_type {served.model_type or 'unknown'}")
        return
    if served.thinking not in ("on", "off"):
        said = "what its chat template does by default could not be read" if not served.thinking else f"its chat template has {served.thinking} for thinking"  # fmt: skip
        draft.left.append(f"--reasoning-parser is left out: {said}")
    elif served.thinking == "on":
        draft.set("--reasoning-parser", served.reasoning, "its template thinks by default: thinking gets its own field")  # fmt: skip
    else:
        draft.set("--reasoning-parser", served.reasoning, "for requests that switch thinking on; the default is off")  # fmt: skip
        draft.set("--default-chat-template-kwargs", OFF, "P01: without it the parser returns content null")
    if served.tool:
        draft.set("--enable-auto-tool-choice", "", "tool_choice auto is refused without it")
        draft.set("--tool-call-parser", served.tool, f"how {served.model_type} writes a call")


RULES: dict[str, Callable[[_Draft], None] | None] = {
    BASELINE: None,
    FIRST_LIGHT: _first_light,
    THROUGHPUT: _throughput,
    LATENCY: _latency,
    RL_ROLLOUT: _rl_rollout,
    TEXT_ONLY: _text_only,
}
