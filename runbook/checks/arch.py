"""ARCH: machine code in the installed files against the cards, read from the files."""

from runbook.model import Check

CHECKS: tuple[Check, ...] = ()
