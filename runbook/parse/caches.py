"""What a file in a compile cache is: the layouts of Triton 3.6, FlashInfer 0.6.6, torch 2.10 to 2.13 and vLLM 0.19.1 and 0.32.0.

They were seen in caches those made (``runbook.cache_facts``); FlashInfer's was read in flashinfer/jit/env.py.
"""

from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath

GRAPHS = "torch.compile"
_DEVICE_CODE = (".cubin", ".hsaco")
_INDUCTOR = ("inductor", "inductor_cache")


def family(path: str) -> str:
    """What kind of compile leaves a file, its path below a stack's cache folder; "" for sources, locks and notes.

    Named by its kernel or module: ``Triton chunk_fwd_kernel_o``, ``FlashInfer gdn_prefill_sm90``, ``inductor``, and
    ``torch.compile`` for graphs that are saved whole.
    """
    place = PurePosixPath(path)
    above = place.parts[:-1]
    if place.suffix in _DEVICE_CODE:
        return f"Triton {place.stem}"
    # Inductor's folder lies beside the others, or in vLLM's, by release.
    if place.suffix == ".so" and any(part in _INDUCTOR for part in above):
        return "inductor"
    if place.suffix == ".o" and "flashinfer" in above:
        return f"FlashInfer {place.parent.name}"
    if "torch_compile_cache" in above and place.name == "model":
        return GRAPHS
    return ""


def families(paths: Iterable[str]) -> dict[str, int]:
    """Files by family, the most frequent first."""
    return dict(Counter(found for path in paths if (found := family(path))).most_common())


def kernels(made: dict[str, int]) -> int:
    """Files that a compiler made; saved graphs are none."""
    return sum(number for name, number in made.items() if name != GRAPHS)
