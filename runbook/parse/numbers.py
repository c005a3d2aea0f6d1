"""Numbers as tools print them. ``str.isdigit`` is true for superscripts and int() has a length limit; both end here."""

import re


def whole(text: str) -> int | None:
    """A whole number of at most 18 ASCII digits, blanks around it allowed; None for anything else."""
    word = text.strip()
    return int(word) if re.fullmatch(r"[0-9]{1,18}", word) else None


def decimal(text: str) -> float | None:
    """A plain decimal number such as ``102.23``; None for anything else."""
    return float(text) if re.fullmatch(r"[0-9]{1,15}(?:\.[0-9]{1,15})?", text) else None
