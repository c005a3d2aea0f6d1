"""The command line of a vLLM server, judged by the options of a release without importing it. Pure; never raises on odd text.

What vLLM's own parser does is repeated here: underscores for dashes, ``--flag=value``, unique beginnings of a name
(argparse), ``--config.key value`` for JSON, ``-O3``, and a YAML file whose ``false`` is dropped. ``benchmarks/judge_flags.py``
holds the two against each other on an installed release.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_NUMBER = re.compile(r"-\d+$|-\d*\.\d+$")


class Outcome(str, Enum):
    """What becomes of one word of the command. Those in REFUSED end the process with an argument error."""

    OK = "ok"
    DEFAULT = "default"
    DEPRECATED = "deprecated"
    IGNORED = "ignored"
    UNKNOWN = "unknown"
    REMOVED = "removed"
    RENAMED = "renamed"
    VALUE = "value"
    MISSING = "missing"
    AMBIGUOUS = "ambiguous"
    EXTRA = "extra"


REFUSED = frozenset({Outcome.UNKNOWN, Outcome.REMOVED, Outcome.RENAMED, Outcome.VALUE, Outcome.MISSING, Outcome.AMBIGUOUS, Outcome.EXTRA})  # fmt: skip


@dataclass(frozen=True)
class Option:
    """One option of a release. ``takes``: none, bool, int, float, count, json, text or other, with "or none"/"or auto"."""

    names: tuple[str, ...]
    takes: str
    nargs: str = ""
    choices: tuple[str, ...] = ()
    default: Any = None
    deprecated: bool = False


@dataclass(frozen=True)
class Shipped:
    """A release's options as ``stacks/NAME/flags.json`` holds them."""

    distribution: str
    version: str
    made: str
    sha256: str
    options: tuple[Option, ...]


@dataclass(frozen=True)
class Command:
    """A command taken apart: variables before it, ``serve`` or ``module`` or ``flags``, and the words the parser reads."""

    variables: tuple[str, ...]
    form: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class Judged:
    """One flag as written (``word``, ``value``), the option it means ("" when none), what becomes of it and why."""

    word: str
    value: str
    option: str
    outcome: Outcome
    says: str = ""

    @property
    def refused(self) -> bool:
        """True when vLLM ends over it."""
        return self.outcome in REFUSED


def shipped(text: str | None) -> Shipped | None:
    """The content of a ``flags.json``; None when it is none."""
    try:
        data = json.loads(text or "")
        found = options(data["options"])
        name, version, made, sha256 = (
            data[key] for key in ("distribution", "version", "made", "options_sha256")
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not found or not all(isinstance(one, str) for one in (name, version, made, sha256)):
        return None
    return Shipped(name, version, made, sha256, found)


def options(rows: object) -> tuple[Option, ...]:
    """Options from the rows that ``inside/vllm_facts.py --options all`` prints; rows of another shape are left out."""
    made = []
    for row in rows if isinstance(rows, list) else []:
        names = row.get("names") if isinstance(row, dict) else None
        if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
            continue
        choices = row.get("choices")
        made.append(
            Option(
                tuple(names),
                str(row.get("takes", "other")),
                str(row.get("nargs", "")),
                tuple(str(one) for one in choices) if isinstance(choices, list) else (),
                row.get("default"),
                row.get("deprecated") is True,
            )
        )
    return tuple(made)


def command(words: Iterable[str]) -> Command | None:
    """``FOO=1 vllm serve ...``, ``python -m vllm.entrypoints.openai.api_server ...``, or flags alone; None for anything else."""
    rest = list(words)
    variables = []
    if rest and rest[0].rpartition("/")[2] == "env":
        del rest[0]
    while rest and _VARIABLE.fullmatch(rest[0]):
        variables.append(rest.pop(0))
    if not rest:
        return None
    if rest[0].startswith("-"):
        return Command(tuple(variables), "flags", tuple(rest))
    if rest[0].rpartition("/")[2] == "vllm" and rest[1:2] == ["serve"]:
        return Command(tuple(variables), "serve", tuple(rest[2:]))
    for at, word in enumerate(rest[:-1]):
        if word == "-m" and rest[at + 1] in MODULES:
            return Command(tuple(variables), "module", tuple(rest[at + 2 :]))
        if (
            word == "-m"
            and rest[at + 1] == "vllm.entrypoints.cli.main"
            and rest[at + 2 : at + 3] == ["serve"]
        ):
            return Command(tuple(variables), "serve", tuple(rest[at + 3 :]))
    return None


def unit(text: str | None) -> Command | None:
    """The vLLM command that a systemd unit starts (systemd.service, ExecStart); None when it starts another thing."""
    joined = re.sub(r"\\\n\s*", " ", text or "")
    for line in re.findall(r"(?m)^ExecStart\s*=\s*[-@:+!|]*(.+)$", joined):
        found = command(_shell_words(line))
        if found is not None and found.form != "flags":
            return found
    return None


def _shell_words(line: str) -> list[str]:
    """The words of a command; of ``bash -c '...'`` those of the command inside, after exec and what comes before &&."""
    try:
        words = shlex.split(line)
        shell = words[0].rpartition("/")[2] in ("sh", "bash") if words else False
        if shell and re.fullmatch(r"-[a-z]*c", (words[1:2] or [""])[0]):
            words = shlex.split(re.split(r"&&|;", (words[2:3] or [""])[0])[-1])
    except ValueError:
        return []
    return words[1:] if words[:1] == ["exec"] else words


def config_words(text: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The words that a YAML file of flags stands for, and those of its lines that vLLM drops or that are not read here.

    Flat ``key: value`` lines and lists are read; of a nested block only its key, with ``{}`` for a value.
    """
    words: list[str] = []
    left: list[str] = []
    listing = False
    for line in text.splitlines():
        bare = line.split(" #", 1)[0].rstrip()
        if not bare or bare.lstrip().startswith("#") or bare == "---":
            continue
        item = re.fullmatch(r"\s*- +(.*)", bare)
        if item and listing:
            words.append(_unquoted(item[1]))
            continue
        pair = re.fullmatch(r"([A-Za-z][\w.-]*)\s*:(?:\s+(.*))?", bare)
        listing = False
        if not pair:
            if not line[:1].isspace():
                left.append(line.strip())
            elif words and words[-1].startswith("--"):
                words.append("{}")
            continue
        key, value = f"--{pair[1]}", (pair[2] or "").strip()
        if value.lower() in ("false", "no", "off"):
            left.append(line.strip())
        elif value.lower() in ("true", "yes", "on"):
            words.append(key)
        else:
            words.append(key)
            listing = not value
            words += [_unquoted(value)] if value else []
    return tuple(words), tuple(left)


def _unquoted(text: str) -> str:
    word = text.strip()
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] and word[0] in "'\"" else word


def judge(
    asked: Command, known: tuple[Option, ...], gone: Mapping[str, Mapping[str, Any]]
) -> tuple[Judged, ...]:
    """What becomes of each flag. ``gone`` is the table of flags that other releases had, by name (see ``tables``)."""
    return _Reading(asked, known, gone).run()


class _Reading:
    def __init__(
        self, asked: Command, known: tuple[Option, ...], gone: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self.form = asked.form
        self.words = list(asked.words)
        self.by_name = {name: one for one in known for name in one.names}
        self.gone = gone
        self.positional = 0
        self.found: list[Judged] = []

    def run(self) -> tuple[Judged, ...]:
        after_flags = False
        bare = [_dashes(word.partition("=")[0]) for word in self.words]
        named = "--served-model-name" in bare and not {"--model", "--config"} & set(bare)
        if self.form == "serve" and named and bare[0].startswith("-"):
            self._say("--served-model-name", "", "", Outcome.MISSING, "'vllm serve' wants the model first")
        while self.words:
            word = self.words.pop(0)
            if word == "--" and not after_flags:
                after_flags = True
            elif after_flags or not self._is_flag(word):
                self._take_positional(word)
            else:
                self._take_flag(word)
        return tuple(self.found)

    def _is_flag(self, word: str) -> bool:
        """As argparse sees it: a negative number, a lone dash and words with a blank in them are values."""
        if word in self.by_name or word.split("=", 1)[0] in self.by_name:
            return True
        if not word.startswith("-") or word == "-" or _NUMBER.match(word):
            return False
        return " " not in word.split("=", 1)[0]

    def _take_positional(self, word: str) -> None:
        self.positional += 1
        if self.positional > 1:
            after = (
                f"; {self.found[-1].word} takes no value" if self.found and not self.found[-1].value else ""
            )
            self._say(word, "", "", Outcome.EXTRA, f"a word too many: unrecognized arguments{after}")
        elif self.form != "serve":
            self._say(word, "", "model_tag", Outcome.IGNORED, "a word without a flag is the model in 'vllm serve' only; here nothing reads it")  # fmt: skip
        else:
            self._say(word, "", "model_tag", Outcome.OK, "the model")

    def _take_flag(self, word: str) -> None:
        level = re.fullmatch(r"-O=?(.+)", word) or (
            word == "-O" and re.fullmatch("([0-3])", (self.words or [""])[0])
        )
        if level and word not in self.by_name:
            if word == "-O":
                self.words.pop(0)
            word = "-O"
            self._judge_value(
                word, "--optimization-level", self.by_name.get("--optimization-level"), level[1]
            )
            return
        written, sign, rest = word.partition("=")
        name = _dashes(written)
        base, dot, _ = name.partition(".")
        option = self._option(word, rest if sign else "", base)
        if option is None:
            # What follows an unknown flag was meant for it; vLLM names both in its error.
            if not sign and self.words and not self._is_flag(self.words[0]):
                self.words.pop(0)
            return
        full, one = option
        if dot:
            self._take_dotted(word, written, full, one, rest if sign else None)
        elif one.takes in ("none", "bool"):
            self._take_switch(written, full, one, rest if sign else None)
        elif sign:
            self._judge_value(written, full, one, rest, note=_CONFIG if full == "--config" else "")
        else:
            self._take_values(written, full, one)

    def _option(self, word: str, value: str, base: str) -> tuple[str, Option] | None:
        if base in self.by_name:
            return base, self.by_name[base]
        near = sorted(name for name in self.by_name if name.startswith(base)) if len(base) > 1 else []
        if len(near) == 1:
            return near[0], self.by_name[near[0]]
        shown = word.partition("=")[0]
        if not value and self.words and not self._is_flag(self.words[0]):
            value = self.words[0]
        row = self.gone.get(base) or self.gone.get(base.replace("--no-", "--", 1))
        if row is not None and "elsewhere" in row:
            self._say(
                shown, value, "", Outcome.UNKNOWN, f"vLLM {row['elsewhere']} has it, this release does not"
            )
        elif row is not None:
            outcome = Outcome.RENAMED if row.get("became") else Outcome.REMOVED
            since = f"gone since {row['since']}; " if row.get("since") else ""
            became = f"it is {row['became']} now; " if row.get("became") else ""
            self._say(shown, value, "", outcome, f"{since}{became}{row.get('now', '')}".strip("; "))
        elif near:
            self._say(shown, value, "", Outcome.AMBIGUOUS, f"could be {', '.join(near[:4])}")
        else:
            self._say(shown, value, "", Outcome.UNKNOWN, self._nearest(base))
        return None

    def _nearest(self, name: str) -> str:
        import difflib  # noqa: PLC0415 - only for a flag that nobody knows

        found = difflib.get_close_matches(name, self.by_name, 1, 0.6)
        return f"the nearest that exists is {found[0]}" if found else "nothing like it exists"

    def _take_dotted(self, word: str, written: str, full: str, one: Option, value: str | None) -> None:
        if value is None:
            if not self.words:
                self._say(word, "", full, Outcome.MISSING, "a key of it was named, but no value follows")
                return
            value = self.words.pop(0)
        if one.takes in ("none", "bool"):
            # vLLM puts the JSON behind the name; behind a switch it is a word by itself.
            self._say(written, "", full, Outcome.OK)
            self._take_positional(value)
            return
        if one.takes.partition(" ")[0] not in ("json", "text"):
            self._say(written, value, full, Outcome.VALUE, f"{full} takes no JSON, so it has no keys")
            return
        self._say(written, value, full, Outcome.OK, "the key is judged at start only")

    def _take_switch(self, written: str, full: str, one: Option, value: str | None) -> None:
        if value is not None:
            off = f"; --no-{full[2:]} turns it off" if one.takes == "bool" else ""
            self._say(written, value, full, Outcome.VALUE, f"it is a switch and takes no value{off}")
            return
        on = not (one.takes == "bool" and _dashes(written).startswith("--no-"))
        if self._old(one):
            self._say(written, "", full, Outcome.DEPRECATED, "vLLM says that it will go")
        elif one.default is on:
            self._say(written, "", full, Outcome.DEFAULT, f"{'on' if on else 'off'} is the default")
        else:
            self._say(written, "", full, Outcome.OK)

    def _take_values(self, written: str, full: str, one: Option) -> None:
        values: list[str] = []
        while self.words and not self._is_flag(self.words[0]) and self.words[0] != "--":
            if values and one.nargs not in ("+", "*"):
                break
            values.append(self.words.pop(0))
        if not values:
            if one.nargs in ("?", "*"):
                self._say(written, "", full, Outcome.OK)
            else:
                self._say(written, "", full, Outcome.MISSING, "a value must follow")
        elif one.nargs in ("+", "*"):
            self._judge_list(written, full, one, values)
        else:
            self._judge_value(written, full, one, values[0])

    def _judge_list(self, written: str, full: str, one: Option, values: list[str]) -> None:
        wrong = [said for value in values if (said := problem(one, value))]
        shown = " ".join(values)
        if wrong:
            self._say(written, shown, full, Outcome.VALUE, wrong[0])
        elif [number(one, value) for value in values] == one.default:
            self._say(written, shown, full, Outcome.DEFAULT, "that is the default")
        else:
            self._say(written, shown, full, Outcome.OK)

    def _judge_value(self, written: str, full: str, one: Option | None, value: str, note: str = "") -> None:
        if one is None:
            self._say(written, value, "", Outcome.UNKNOWN, self._nearest(full))
        elif said := problem(one, value):
            self._say(written, value, full, Outcome.VALUE, said)
        elif note:
            self._say(written, value, full, Outcome.IGNORED, note)
        elif full == "--model" and self.form == "serve":
            self._say(
                written, value, full, Outcome.DEPRECATED, "'vllm serve' wants the model as its first word"
            )
        elif self._old(one):
            self._say(written, value, full, Outcome.DEPRECATED, "vLLM says that it will go")
        elif one.default is not None and number(one, value) == one.default and type(one.default) is not bool:
            self._say(written, value, full, Outcome.DEFAULT, "that is the default")
        else:
            self._say(written, value, full, Outcome.OK)

    def _old(self, one: Option) -> bool:
        return one.deprecated

    def _say(self, word: str, value: str, option: str, outcome: Outcome, says: str = "") -> None:
        self.found.append(Judged(word, value, option, outcome, says))


_CONFIG = "vLLM reads the file only when it is a word of its own: --config FILE"


def _dashes(written: str) -> str:
    """Underscores as dashes in the part before the first dot; a name with one dash keeps them."""
    if not written.startswith("--"):
        return written
    head, dot, tail = written.partition(".")
    return head.replace("_", "-") + dot + tail


def number(one: Option, value: str) -> Any:  # noqa: ANN401 - a default of any JSON type is compared with it
    """The value as the option's kind holds it; the text itself where that is not possible."""
    kind = one.takes.partition(" ")[0]
    if one.takes.endswith("or none") and value in ("", "None"):
        return None
    auto = "auto" in one.takes
    kinds: dict[str, Callable[[str], Any]] = {
        "int": int,
        "float": float,
        "count": lambda text: _count(text, auto=auto),
        "json": json.loads,
    }
    made = kinds.get(kind, str)
    if kind == "text" and isinstance(one.default, dict) and not one.nargs:
        made = json.loads
    try:
        return made(value)
    except (ValueError, RecursionError, OverflowError):
        return value


def problem(one: Option, value: str) -> str:
    """Why the option's own parser refuses a value; "" when it does not, or cannot be foreseen."""
    kind = one.takes.partition(" ")[0]
    if one.takes.endswith("or none") and value in ("", "None"):
        return ""
    made = number(one, value)
    if kind in ("int", "count") and not isinstance(made, int):
        more = ", 8k, 8K or auto" if "auto" in one.takes else " or 8k, 8K" if kind == "count" else ""
        return f"a whole number{more} is wanted"
    if kind == "float" and not isinstance(made, float):
        return "a number is wanted"
    if kind == "json":
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            return "JSON is wanted"
    if one.choices:
        written = value.lower().replace("-", "_") if kind == "other" else str(made)
        if written not in one.choices:
            return f"one of {', '.join(one.choices)}"
    return ""


def _count(value: str, *, auto: bool) -> int:
    """``8k`` is 8000, ``8K`` 8192; with ``auto`` also ``auto`` and ``-1``.

    Raises:
        ValueError: none of these.
    """
    word = value.strip()
    if auto and (word == "-1" or word.lower() == "auto"):
        return -1
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,12})?)([kKmMgGtT])", word, re.ASCII)
    if not found:
        return int(word)
    power = "kmgt".index(found[2].lower()) + 1
    return int(float(found[1]) * 1000**power) if found[2].islower() else int(found[1]) * 1024**power
