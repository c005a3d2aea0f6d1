"""Which Qwen3.5 models exist, what is known of each, and what a name that is none of them was probably meant to be.

The files beside this one are tables, ``{"what": ..., "rows": [...]}``, one row a line: ``models``, ``pitfalls``, ``names``
(wrong ones), ``floors`` (versions), ``quantisation`` (compute capabilities), ``sources``. Every value names its sources;
one that was looked for and not found is null, never guessed. Nothing here asks a network.
"""

import functools
import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook.errors import BadParameter

FOLDER = Path(__file__).parent
READ = "2026-11-30"
FAMILY = "Qwen3.5"
PUBLISHERS = ("qwen", "nvidia")
# OWNER/NAME as the hub allows them: neither part begins with a dot or a dash.
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_NAME = re.compile(
    r"qwen[-_ ]?3\.5(?:[-_ ](?P<before>vl|omni))?(?:[-_ ](?P<size>\d+(?:\.\d+)?b(?:-a\d+(?:\.\d+)?b)?))?(?:[-_ ](?P<suffix>.*))?",
    re.IGNORECASE | re.ASCII,
)
EXISTS, WRONG, OTHER = "exists", "wrong", "other"
AT_MOST = 4  # names in an answer


@dataclass(frozen=True)
class Model:
    """One model. ``values`` is its row; a block it shares with another model is that model's (``get`` resolves it)."""

    id: str
    size: str
    kind: str
    tuning: str
    precision: str
    publisher: str
    values: dict[str, Any]

    def get(self, path: str) -> Any:  # noqa: ANN401 - a value of any JSON type
        """The value at a dotted path such as ``parameters.total``; None where nothing is known.

        Of a row that shares its geometry with another (``as``), a block it does not have itself is that row's; a null of
        its own stays null.
        """
        if base := self._shared(path):
            return base.get(path)
        found: Any = self.values
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found

    def sources(self, path: str) -> tuple[str, ...]:
        """Keys of ``sources`` for the value at a path: its own, else those of the nearest block around it."""
        if base := self._shared(path):
            return base.sources(path)
        parts = path.split(".")
        for end in range(len(parts), 0, -1):
            if found := self.values["src"].get(".".join(parts[:end])):
                return tuple(found)
        return ()

    def inferred(self, path: str) -> bool:
        """True when the value was reasoned from a sibling or a count, not read in this model's own files."""
        parts = path.split(".")
        listed = set(self.values["inferred"])
        own = any(".".join(parts[:end]) in listed for end in range(1, len(parts) + 1))
        return own or self._shared(path) is not None

    def _shared(self, path: str) -> "Model | None":
        """The model whose block this is, when it is not this row's own."""
        block = self.values.get(path.partition(".")[0], {"same_as": self.values.get("as")})
        return find(block["same_as"]) if isinstance(block, dict) and block.get("same_as") else None

    @property
    def config(self) -> dict[str, Any]:
        """What config.json holds of geometry, with ``layer_types`` written out; as far as it is known."""
        text, vision = dict(self.get("text_config")), dict(self.get("vision_config"))
        layers = text["layer_types"]
        text["layer_types"] = layers["pattern"] * layers["repeat"]
        config = {
            "architectures": self.get("architectures"),
            "model_type": self.get("model_type"),
            "tie_word_embeddings": text["tie_word_embeddings"],
            "text_config": {name: value for name, value in text.items() if value is not None},
            "vision_config": vision,
        }
        return {**config, **self.get("config_token_ids")}


@dataclass(frozen=True)
class Pitfall:
    """What goes wrong with these models. ``checks`` see it on a machine; none do where ``where`` is ""."""

    id: str
    title: str
    symptom: str
    fix: str
    fix_inferred: bool
    applies_to: tuple[str, ...]
    checks: tuple[str, ...]
    where: str
    source: tuple[str, ...]


@dataclass(frozen=True)
class Naming:
    """What a name is: ``exists`` (then ``model``), ``wrong`` (no such repository), or ``other``: not of this family.

    ``why`` is a sentence for a reader; ``nearest`` are ids that do exist.
    """

    name: str
    verdict: str
    why: str
    model: Model | None = None
    nearest: tuple[str, ...] = ()


@functools.cache
def rows(name: str) -> tuple[dict[str, Any], ...]:
    """The rows of one table of this folder."""
    return tuple(json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))["rows"])


@functools.cache
def models() -> tuple[Model, ...]:
    """Every model, the eight post-trained ones first, by size."""
    return tuple(
        Model(row["id"], row["size"], row["kind"], row["tuning"], row["precision"], row["publisher"], row)
        for row in rows("models")
    )


@functools.cache
def pitfalls() -> tuple[Pitfall, ...]:
    """Every known pitfall, in the order of their ids."""
    return tuple(
        Pitfall(
            row["id"],
            row["title"],
            row["symptom"],
            row["fix"] or "",
            row["fix_inferred"],
            tuple(row["applies_to"]),
            tuple(row["checks"]),
            row["where"] or "",
            tuple(row["source"]),
        )
        for row in rows("pitfalls")
    )


def of(model: Model) -> tuple[Pitfall, ...]:
    """The pitfalls of one model."""
    return tuple(one for one in pitfalls() if one.id in model.values["pitfalls"])


def floor(name: str, model_type: str) -> dict[str, Any] | None:
    """The row of ``floors`` of that name for a config's ``model_type``, such as ``lowest vLLM``; None for another family."""
    return next(
        (row for row in rows("floors") if row["name"] == name and model_type in row["model_types"]), None
    )


def capability(vllm: str, method: str, algo: str) -> dict[str, Any] | None:
    """The row of ``quantisation`` for a vLLM release and a config's method; None where it is not on record."""
    wanted = (vllm, method, algo if method == "modelopt" else "")
    return next(
        (row for row in rows("quantisation") if (row["vllm"], row["method"], row["algo"]) == wanted), None
    )


def find(name: str) -> Model | None:
    """The model of exactly that id."""
    return next((one for one in models() if one.id == name), None)


def nearest(name: str) -> Naming:
    """What a name is, judged from the catalogue alone; for any text."""
    if model := find(name):
        return Naming(name, EXISTS, f"{name}: {model.tuning}, {model.precision}", model, (name,))
    owner, _, bare = name.rpartition("/")
    found = _NAME.fullmatch(bare)
    if found is None:
        return _other(name, bare)
    size, suffix = (found["size"] or "").upper(), found["before"] or found["suffix"] or ""
    if owner.lower() not in ("", *PUBLISHERS):
        return _copy(name, size)
    if same := _same(size, suffix):
        return Naming(name, WRONG, f"the name is written {same[0]}", None, same)
    hosted = _wrong("hosted", suffix)
    why = [str(hosted["because"])] if hosted else [text for text in (_why_size(size), _why_suffix(size, suffix)) if text]  # fmt: skip
    near = _near(size, suffix)
    return Naming(name, WRONG, "; ".join(why) or f"{FAMILY} has no such model", None, near)


def demanded(name: str) -> Naming:
    """As ``nearest``, for a name that is about to be used: one that leads nowhere is refused before anything is fetched.

    Raises:
        BadParameter: no such model exists; says why and which do.
    """
    naming = nearest(name)
    if naming.verdict == WRONG:
        raise BadParameter(
            f"there is no model {name!r}: {naming.why}",
            f"one that exists, such as {', '.join(naming.nearest)}",
            f"runbook model lists them; one newer than {READ}, the day of this list, has to be fetched by you and named as a folder",
        )
    return naming


def _copy(name: str, size: str) -> Naming:
    """Somebody else's repository with a name of the family."""
    of_size = next((one for one in models() if one.size == size), None)
    after = f", by its name one of {of_size.id}" if of_size else ""
    why = f"{name} is a copy or a finetune by somebody else{after}: its own files decide"
    return Naming(name, OTHER, why, None, (of_size.id,) if of_size else ())


def _other(name: str, bare: str) -> Naming:
    alike = next(
        (
            row
            for row in rows("names")
            if row["rule"] == "look-alike" and any(bare.startswith(each) for each in row["wrong"])
        ),
        None,
    )
    why = f": {alike['because']}" if alike else ""
    return Naming(name, OTHER, f"{name} is not of the {FAMILY} family{why}")


def _same(size: str, suffix: str) -> tuple[str, ...]:
    """The models this name differs from in capitals, dashes or owner only; of several Qwen's first."""
    bare = "-".join(part for part in (size, suffix) if part).lower()
    names = (one.id for one in models())
    return tuple(name for name in names if name.partition(f"/{FAMILY}-")[2].lower() == bare)


def _sizes() -> tuple[str, ...]:
    return tuple(dict.fromkeys(one.size for one in models()))


def _wrong(rule: str, word: str) -> dict[str, Any] | None:
    lowered = word.lower()
    return next(
        (
            row
            for row in rows("names")
            if row["rule"] == rule and lowered in {each.lower() for each in row["wrong"]}
        ),
        None,
    )


def _why_size(size: str) -> str:
    if size in _sizes():
        return ""
    if not size:
        return "a size is missing"
    whole = next((one for one in _sizes() if one.startswith(f"{size}-")), None)
    if whole:
        return f"that size is written {whole}"
    row = _wrong("size", size)
    return f"{FAMILY} has no {size}" + (f" (looks like {row['because']})" if row else "")


def _why_suffix(size: str, suffix: str) -> str:
    if not suffix or any(one.size == size and one.id.lower().endswith(f"-{suffix.lower()}") for one in models()):  # fmt: skip
        return ""
    row = _wrong("suffix", suffix)
    return str(row["because"]) if row else f"no model of the family ends in -{suffix}"


def _near(size: str, suffix: str) -> tuple[str, ...]:
    """Ids that do exist, nearest first: of the size that was meant, with the ending that was meant where there is one."""
    row = _wrong("size", size)
    right = find(str(row["nearest"])) if row else None
    meant = right.size if right else _closest(size)
    hosted, ending = _wrong("hosted", suffix), _wrong("suffix", suffix)
    first = [str(hosted["nearest"])] if hosted else []
    same_kind = [one.id for one in models() if suffix and one.id.lower().endswith(f"-{suffix.lower()}")]
    of_size = [one.id for one in models() if one.size == meant]
    named = [str(ending["nearest"])] if ending and ending["nearest"] else []
    both = [each for each in same_kind if each in of_size]
    others = [one.id for one in models() if one.id == f"Qwen/{FAMILY}-{_next(meant)}"]
    return tuple(dict.fromkeys([*first, *both, *of_size[:1], *named, *same_kind[:1], *others, *of_size[1:]]))[
        :AT_MOST
    ]


def _billions(size: str) -> float:
    return float(size.partition("B")[0])


def _closest(size: str) -> str:
    """The size nearest by ratio; 4B, the one the runbook serves, where none was named."""
    whole = next((one for one in _sizes() if size and one.startswith(f"{size}-")), None)
    if whole or not size:
        return whole or "4B"
    wanted = max(_billions(size), 0.01)
    return min(_sizes(), key=lambda one: abs(math.log(_billions(one) / wanted)))


def _next(size: str) -> str:
    order: Sequence[str] = _sizes()
    place = order.index(size)
    return order[min(place + 1, len(order) - 1)]
