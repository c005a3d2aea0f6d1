"""What can be wrong with a checkpoint, as a value."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST = 300  # letters of a fault's text that are kept: names in a hostile file may be of any length

# A server starts and answers rightly in spite of these; the reader should know them all the same. Any other is a failure.
MILD = frozenset(
    {
        "config/rope-scaling-idle",
        "generation/eos-token",
        "generation/none",
        "generation/pad",
        "generation/sampling",
        "index/none",
        "index/total-size",
        "index/unlisted",
        "origin/adapter-beside",
        "origin/pickle-beside",
        "origin/text-only",
        "shapes/mtp",
        "template/thinking",
        "template/two",
        "tokenizer/remote-code",
    }
)


@dataclass(frozen=True)
class Fault:
    """``kind`` is a stable key ``subject/what``; ``file`` a name in the folder; ``text`` goes on from it: "ends 7 bytes early"."""

    kind: str
    file: str
    text: str

    @property
    def subject(self) -> str:
        """The part of ``kind`` that names a module of this package, and by that a check."""
        return self.kind.partition("/")[0]

    @property
    def mild(self) -> bool:
        """Whether the checkpoint can be served as it is."""
        return self.kind in MILD


def line(text: object) -> str:
    """One printable line for a person, whatever was in the file: cut to ``LONGEST``, control characters as escapes."""
    try:
        words = str(text)[: LONGEST + 1]
    except (RecursionError, ValueError):  # lists in lists in lists, or a number of thousands of digits
        words = f"a {type(text).__name__} too large to be told"
    words = re.sub(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\U0010ffff]", lambda found: _escaped(found[0]), words)
    return words if len(words) <= LONGEST else f"{words[: LONGEST - 3]}..."


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "surrogatepass").decode("ascii")


def few(names: Sequence[str], most: int = 3) -> str:
    """``3 (a, b, c)`` or ``174 (a, b, c, ...)``: how many, and the first of them."""
    shown = ", ".join(line(name) for name in names[:most])
    return f"{len(names)} ({shown}{', ...' if len(names) > most else ''})"
