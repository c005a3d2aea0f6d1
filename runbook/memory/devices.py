"""How much memory a card has as a program sees it: measured for that card, or in proportion to nvidia-smi's total."""

from collections.abc import Mapping
from typing import Any

from runbook import tables
from runbook.errors import BadParameter
from runbook.memory.overhead import MIB
from runbook.memory.plan import CUDA, Device

PROPORTION = "of nvidia-smi's total a program sees a little less; taken as on an H200, 99.57 %"


def named(name: str, memory_mib: int | None) -> tuple[Device, tuple[str, ...]]:
    """The card of that name, and what was assumed; ``memory_mib`` is nvidia-smi's total where the user gave it.

    Raises:
        BadParameter: the table knows no such card, or not how much memory it has.
    """
    card = tables.card(name)
    full = card["names"][0] if card and card.get("names") else name
    if memory_mib is not None:
        return sized(memory_mib, full, card)
    if card is None:
        raise BadParameter(
            f"--gpu {name!r} is no card the table knows, or one of several",
            "a name such as nvidia-smi prints it",
            "give its memory instead: --gpu-memory-mib, as nvidia-smi prints the total",
        )
    known = tables.visible_memory(card["id"])
    if known is not None:
        return Device(CUDA, known, full, card.get("sm_count")), ()
    if not card.get("memory_gib"):
        raise BadParameter(
            f"the table has no memory for {name}",
            "its size",
            "--gpu-memory-mib, as nvidia-smi prints the total",
        )
    device, _ = sized(int(card["memory_gib"] * 1024), full, card)
    sold = f"{card['memory_gib']} GiB is the size it is sold with"
    return device, (f"{sold}; --gpu-memory-mib with the total of nvidia-smi is exact",)


def sized(mib: int, name: str, card: Mapping[str, Any] | None) -> tuple[Device, tuple[str, ...]]:
    """A card by nvidia-smi's total."""
    known = tables.visible_memory(card["id"], mib) if card else None
    memory = known or int(mib * MIB * tables.visible_share())
    return Device(CUDA, memory, name, (card or {}).get("sm_count")), () if known else (PROPORTION,)
