"""The guided forms: short lists of checks in an order in which each rests on the one before, stopped at the first guilty one.

Two articles name them and leave most of it out: the "30-second health check" has four probes, of which two look at the
wrong thing, and of the "golden five steps" only the first is written down. The names and the order are theirs; the checks
are ours (``docs/claims.md`` has what they asked instead).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A question, and the checks that answer it."""

    asks: str
    checks: tuple[str, ...]


HEALTH: tuple[Step, ...] = (
    Step("Is the driver new enough for every CUDA runtime that is installed?", ("CUDA-001", "CUDA-008")),
    Step("Are cuDNN, NCCL and the others those that torch was built with?", ("TORCH-009", "TORCH-010")),
    Step("Does torch hold machine code for this card?", ("ARCH-001",)),
    Step("Does vLLM?", ("ARCH-002", "ARCH-003")),
)
GOLDEN: tuple[Step, ...] = (
    Step(
        "Does the driver serve the card, and the runtime fit the driver?",
        ("DRIVER-001", "DRIVER-002", "DRIVER-003", "DRIVER-004", "CUDA-001"),
    ),
    Step(
        "Do the pieces that are installed fit each other and the card?",
        ("PY-003", "TORCH-002", "ABI-001", "ABI-002", "ARCH-001", "ARCH-002"),
    ),
    Step(
        "Do torch and vLLM load, and on the device that is meant?",
        ("TORCH-004", "TORCH-005", "VLLM-003", "VLLM-004"),
    ),
    Step(
        "Is the checkpoint whole, known to this vLLM, and does it fit?",
        ("MODEL-001", "MODEL-002", "MODEL-003", "MODEL-008", "MODEL-010"),
    ),
    Step("What does the server say?", ("TRIAGE-001",)),
)
BY_NAME: Mapping[str, Sequence[Step]] = {"health": HEALTH, "golden": GOLDEN}
