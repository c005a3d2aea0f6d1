"""Edited copies about the machine code in the wheels. The parent is the recording of one H200 with the GPU stack."""

import json
from collections.abc import Callable
from typing import Any

from editing import Edited, replaced

from runbook.checks.readings import BINARIES, GPU_QUESTION
from runbook.model import Verdict

ONE, STACK = "h200-vllm-0.19.1", "vllm-0.19.1-cu128"
WARN, FAIL = Verdict.WARN, Verdict.FAIL


def keeping(*targets: str, of: str = "") -> Callable[[str], str]:
    """The libraries whose path begins with ``of``, with these targets of their SASS and no PTX."""

    def only(found: list[str]) -> list[str]:
        return [target for target in found if target in targets]

    def change(text: str) -> str:
        answer: dict[str, Any] = json.loads(text)
        for row in answer["files"]:
            if row["file"].startswith(of) and not row.get("cubins"):
                row |= {"sass": only(row["sass"]), "ptx": [], "isa": {}}
                row["units"] = [[count, only(sass), []] for count, sass, _ in row["units"]]
        answer["files"] = [row for row in answer["files"] if row["sass"]]
        return json.dumps(answer, separators=(",", ":")) + "\n"

    return change


MACHINES = [
    Edited(
        "h200-built-for-ampere",
        ONE,
        STACK,
        "one H200; every package in the target was built on a machine with an A100",
        ("all libraries hold sm_80 and no PTX",),
        {BINARIES: keeping("sm_80")},
        {"FLASH-004": FAIL, "ARCH-001": FAIL, "ARCH-002": FAIL, "ARCH-003": FAIL, "ARCH-005": FAIL, "ARCH-006": WARN},
    ),
    Edited(
        "rtx5090-old-torch",
        ONE,
        STACK,
        "one RTX 5090 and a torch whose code ends at sm_90",
        (
            "the card is a GeForce RTX 5090 (12.0) with 32607 MiB",
            "torch's libraries hold sm_80, sm_86 and sm_90",
        ),
        {
            GPU_QUESTION: replaced(("NVIDIA H200, 9.0, 580.159.04, 143771", "NVIDIA GeForce RTX 5090, 12.0, 580.159.04, 32607")),
            BINARIES: keeping("sm_80", "sm_86", "sm_90", of="torch/"),
        },
        {"FLASH-004": WARN, "ARCH-001": FAIL, "ARCH-003": WARN, "WARM-008": WARN},
    ),
]  # fmt: skip
