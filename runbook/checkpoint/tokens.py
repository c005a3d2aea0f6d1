"""tokenizer.json and tokenizer_config.json: the vocabulary, its special tokens, and whether the model has a row for each.

``tokenizer.json`` is what the tokenizers library loads (https://huggingface.co/docs/tokenizers/components); the config
beside it names the class and the tokens with a role. Older checkpoints keep roles in special_tokens_map.json.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runbook.checkpoint import files
from runbook.checkpoint.config import NAME as CONFIG
from runbook.checkpoint.config import Config, count
from runbook.checkpoint.faults import Fault, few, line
from runbook.checkpoint.files import Unusable

NAME, SETTINGS, ROLES = "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"
NAMED = ("bos_token", "eos_token", "unk_token", "pad_token")
# Classes that take the byte-level BPE of tokenizer.json as it is; "" where the config names none.
BYTE_LEVEL = (
    "",
    "PreTrainedTokenizerFast",
    "TokenizersBackend",
    "Qwen2Tokenizer",
    "Qwen2TokenizerFast",
    "Qwen3_5Tokenizer",
    "Qwen3_5TokenizerFast",
)
# config.json key -> the token of that id in every Qwen with a vision tower.
VISION_TOKENS = {
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
}


@dataclass(frozen=True)
class Tokens:
    """``ids``: token -> id of the whole vocabulary; ``added``: those outside the merges; ``roles``: role -> token."""

    ids: Mapping[str, int]
    added: Mapping[str, int]
    roles: Mapping[str, str]
    named: str  # the class
    settings: Mapping[str, Any] = field(default_factory=dict)

    def of(self, role: str) -> int | None:
        """The id of the token with that role."""
        return self.ids.get(self.roles.get(role, ""))


def read(folder: Path, present: tuple[str, ...], config: Config | None) -> tuple[Tokens | None, list[Fault]]:
    """The tokenizer, or None where tokenizer.json cannot be read; and its faults."""
    faults: list[Fault] = []
    settings = _optional(folder, SETTINGS, present, faults)
    older = _optional(folder, ROLES, present, faults)
    try:
        document = files.loads(files.text(folder, NAME, "tokenizer"), NAME, "tokenizer", once=False)
    except Unusable as why:
        return None, [*faults, why.fault]
    model = document.get("model")
    body = model if isinstance(model, dict) else {}
    words = body.get("vocab")
    if not isinstance(words, dict) or not words or any(count(number) is None for number in words.values()):
        return None, [*faults, Fault("tokenizer/vocabulary", NAME, "has no model.vocab from tokens to ids")]
    rows = document.get("added_tokens")
    added = {
        one["content"]: one["id"]
        for one in (rows if isinstance(rows, list) else [])
        if isinstance(one, dict) and isinstance(one.get("content"), str) and count(one.get("id")) is not None
    }
    roles = {role: content for role in NAMED if (content := _content(settings.get(role, older.get(role))))}
    named = settings.get("tokenizer_class")
    found = Tokens({**words, **added}, added, roles, named if isinstance(named, str) else "", settings)
    faults += [*_ids(words, added), *_merges(body, words), *_roles(found, settings, older)]
    faults += [*_class(found, body, config), *(_model(found, config) if config else ())]
    return found, faults


def _optional(folder: Path, name: str, present: tuple[str, ...], faults: list[Fault]) -> dict[str, Any]:
    if name not in present:
        return {}
    try:
        return files.json_object(folder, name, "tokenizer")
    except Unusable as why:
        faults.append(why.fault)
        return {}


def _content(value: object) -> str:
    """A token, written as text or as an object with its text."""
    inner = value.get("content") if isinstance(value, dict) else value
    return inner if isinstance(inner, str) else ""


def _ids(words: Mapping[str, int], added: Mapping[str, int]) -> Iterator[Fault]:
    """Two tokens of one id: of a text with the one, the other comes back."""
    every = {**words, **added}
    if len(set(every.values())) != len(every):
        seen: dict[int, str] = {}
        twice = [
            (word, seen[number]) for word, number in every.items() if seen.setdefault(number, word) != word
        ]
        text = f"gives one id to several tokens, {len(twice)} times: {line(twice[0][0])!r} and {line(twice[0][1])!r} are {every[twice[0][0]]}"
        yield Fault("tokenizer/ids", NAME, text)


def _merges(body: Mapping[str, Any], words: Mapping[str, int]) -> Iterator[Fault]:
    """Each merge joins two tokens to a third; the library refuses a file in which one of them is no token."""
    merges = body.get("merges")
    if body.get("type") != "BPE":
        return
    if not isinstance(merges, list):
        yield Fault("tokenizer/merges", NAME, "has no list of merges")
        return
    wrong = [f"number {number}" for number, one in enumerate(merges) if not _joins(one, words)]
    if wrong:
        yield Fault("tokenizer/merges", NAME, f"has merges of what is no token: {few(wrong)}")


def _joins(one: object, words: Mapping[str, int]) -> bool:
    """Whether a merge, written as two texts or as one with a space between them, is of tokens to a token."""
    pair: Any = one.split(" ") if isinstance(one, str) else one
    try:
        left, right = pair
        return left in words and right in words and left + right in words
    except (TypeError, ValueError):
        return False


def _roles(found: Tokens, settings: Mapping[str, Any], older: Mapping[str, Any]) -> Iterator[Fault]:
    """Tokens that the config gives a role, and the vocabulary does not have."""
    for role, token in found.roles.items():
        if token not in found.ids:
            kind = "tokenizer/pad" if role == "pad_token" else "tokenizer/special"
            yield Fault(
                kind, SETTINGS, f"calls {line(token)!r} the {role}, and the vocabulary has no such token"
            )
    several = [
        settings.get(key) or older.get(key) for key in ("additional_special_tokens", "extra_special_tokens")
    ]
    for each in several:
        listed = list(each.values()) if isinstance(each, dict) else each if isinstance(each, list) else []
        missing = [token for one in listed if (token := _content(one)) and token not in found.ids]
        if missing:
            yield Fault(
                "tokenizer/special",
                SETTINGS,
                f"names special tokens that the vocabulary does not have: {few(missing)}",
            )
    decoder = settings.get("added_tokens_decoder")
    if isinstance(decoder, dict):
        other = [
            content
            for number, one in decoder.items()
            if (content := _content(one)) and str(found.ids.get(content)) != number
        ]
        if other:
            yield Fault("tokenizer/special", SETTINGS, f"gives other ids than {NAME} to tokens: {few(other)}")


def _class(found: Tokens, body: Mapping[str, Any], config: Config | None) -> Iterator[Fault]:
    if found.settings.get("auto_map"):
        yield Fault(
            "tokenizer/remote-code",
            SETTINGS,
            "names code of its own (auto_map), which is not run without --trust-remote-code",
        )
    if config and config.family and body.get("type") == "BPE" and found.named not in BYTE_LEVEL:
        text = f"names the class {line(found.named)}, which splits text otherwise than a Qwen's byte-level tokens ask"
        yield Fault("tokenizer/class", SETTINGS, text)


def _model(found: Tokens, config: Config) -> Iterator[Fault]:
    """Ids against the rows of the embedding, and against the ids that config.json speaks of."""
    rows = config.vocabulary
    beyond = sorted(number for number in found.ids.values() if rows is not None and number >= rows)
    if beyond:
        text = f"has {len(beyond)} tokens with ids up to {beyond[-1]}, the model's vocab_size is {rows}"
        yield Fault("tokenizer/vocabulary", NAME, text)
    pad = count(config.text.get("pad_token_id", config.whole.get("pad_token_id")))
    if pad is not None and pad not in set(found.ids.values()):
        yield Fault("tokenizer/pad", CONFIG, f"pad_token_id {pad} is no token of {NAME}")
    for key, token in VISION_TOKENS.items():
        said = count(config.whole.get(key))
        if config.family and said is not None and found.ids.get(token) != said:
            have = found.ids.get(token)
            text = f"{key} is {said}, in {NAME} {token} " + (
                "does not exist" if have is None else f"is {have}"
            )
            yield Fault("tokenizer/id", CONFIG, text)
