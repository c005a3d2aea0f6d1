"""``normalize_prompt`` of the articles: four full-width marks to half-width ones. Pure; nothing uses it unless asked to.

It is offered, not recommended. Qwen's tokenizer applies NFC only, which leaves full-width marks alone, and the family was
trained on Chinese text, whose ordinary punctuation they are; that they lower the quality of answers was claimed, never
shown. What it does is change what the user wrote: quoted text, code and names included.
"""

import unicodedata
from dataclasses import dataclass

# Names, because the marks themselves look alike in many fonts.
MARKS = {
    "\N{FULLWIDTH COMMA}": ",",
    "\N{IDEOGRAPHIC FULL STOP}": ".",
    "\N{FULLWIDTH EXCLAMATION MARK}": "!",
    "\N{FULLWIDTH QUESTION MARK}": "?",
}
_TABLE = str.maketrans(MARKS)


@dataclass(frozen=True)
class Changes:
    """What it does to one text: how often each mark is replaced, and which other full-width marks are left as they are."""

    replaced: dict[str, int]
    left: dict[str, int]

    @property
    def total(self) -> int:
        """Characters that change."""
        return sum(self.replaced.values())


def normalize_prompt(text: str) -> str:
    """``text`` with its full-width comma, full stop, exclamation and question mark replaced; as long as before.

    Twice is the same as once. Every other character stays, the full-width colon, brackets and quotes too.
    """
    return text.translate(_TABLE)


def changes(text: str) -> Changes:
    """Count what ``normalize_prompt`` would replace in ``text``, and what of the kind it would leave."""
    marks = [letter for letter in text if _is_wide_mark(letter)]
    replaced = {mark: marks.count(mark) for mark in MARKS if mark in marks}
    left = {mark: marks.count(mark) for mark in sorted(set(marks) - MARKS.keys())}
    return Changes(replaced, left)


def _is_wide_mark(letter: str) -> bool:
    """Punctuation or a sign as wide as an ideograph (Unicode's East Asian Width F and W)."""
    return unicodedata.category(letter)[0] in "PS" and unicodedata.east_asian_width(letter) in "FW"
