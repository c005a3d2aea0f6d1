"""Untrusted text made fit to be shown: no terminal codes, no control or direction characters, no endless lines."""

import re
import unicodedata

WIDTH = 300
"""Characters of a line that are shown around what was found."""

# CSI, OSC (titles, links) and short escapes of ECMA-48, a character set with its name; also as JSON writes them in
# container logs. Never across a line's end, so that lines keep their numbers.
ESCAPES = (
    r"(?:\x1b|\\u001b)(?:\[[0-9;:<=>?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[()#%*+].|[@-Z\\^_])"
)
_ESCAPES = re.compile(ESCAPES)
# Format characters: bidirectional overrides and zero-width ones reorder or hide what stands there.
HIDING = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def plain(text: str) -> str:
    """The text without terminal codes; what is left of control and direction characters is shown by its number."""
    return "".join(_shown(one) for one in _ESCAPES.sub("", text))


def _shown(one: str) -> str:
    if one == "\t" or unicodedata.category(one) not in HIDING:
        return one
    return f"\\x{ord(one):02x}" if ord(one) < 0x100 else f"\\u{ord(one):04x}"  # noqa: PLR2004 - one byte


def excerpt(line: bytes, start: int, end: int) -> str:
    """What is shown of a line: the part around ``line[start:end]``, with … where something was left out."""
    # A progress bar draws over itself with carriage returns: only the turn with the find in it counts.
    first = line.rfind(b"\r", 0, start) + 1
    last = line.find(b"\r", end)
    last = len(line) if last < 0 else last
    cut_first = max(first, min(start - WIDTH // 3, last - WIDTH))
    if cut_first > first:  # not in the middle of a word, nor of a letter of several bytes
        cut_first = line.find(b" ", cut_first, start) + 1 or cut_first
    cut_last = min(last, cut_first + WIDTH)
    shown = plain(line[cut_first:cut_last].decode("utf-8", errors="replace")).strip()
    return ("…" if cut_first > first else "") + shown + ("…" if cut_last < last else "")
