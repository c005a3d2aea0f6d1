"""Whether the kernel in a wheel of flash-attn is right, tried from a folder beside the target, which is not changed."""

import contextlib
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from runbook.actions.flash_source import by_uv

RIGHT, WRONG = "right", "wrong"
LIMIT_S = 600.0


@contextlib.contextmanager
def beside(wheel: Path, python: Path, log: Path) -> Iterator[Path]:
    """The wheel unpacked into a folder beside it, for as long as it takes.

    Raises:
        ActionFailed: it is no wheel for that interpreter.
    """
    folder = wheel.parent / "beside"
    shutil.rmtree(folder, ignore_errors=True)
    words = ["pip", "install", "--python", str(python), "--no-deps", "--no-index", "--target", str(folder)]
    try:
        by_uv([*words, str(wheel)], log, "unpacking the wheel")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judged(answer: Mapping[str, object]) -> dict[str, object]:
    """What ``inside/flash_check`` found: ``said`` is right, wrong, or why there is no verdict; the rest is evidence."""
    if "error" in answer:
        why = str(answer["error"])
        # What speaks of the moment and not of the wheel.
        passing = "out of memory" in why or why.startswith("no answer within")
        return {"said": f"unknown: {why}"} if passing else {"said": WRONG, "why": why}
    if answer.get("no_gpu"):
        return {"said": "unknown: it loads, and there is no GPU to run it on", "version": answer["version"]}
    facts = {
        name: answer[name] for name in ("version", "gpu", "cases", "worst", "worst_grad", "blunder", "most")
    }
    if not float(str(answer["blunder"])) > float(str(answer["most"])):
        return {"said": "unknown: the bound is so wide that it would let wrong attention pass", **facts}
    if answer["wrong_cases"]:
        return {
            "said": WRONG,
            "why": f"{answer['wrong_cases']} of {answer['cases']} cases, first {answer['wrong']}",
            **facts,
        }
    return {
        "said": RIGHT,
        "why": f"{answer['cases']} cases on {answer['gpu']}, largest difference {answer['worst']}",
        **facts,
    }
