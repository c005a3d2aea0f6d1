"""ABI: what each extension needs of torch and CUDA against what those libraries export, before anything is imported."""

from runbook.model import Check

CHECKS: tuple[Check, ...] = ()
