"""Hold ``runbook/tables/attention_backends.json`` against vLLM's own functions, for cards that this machine does not have.

    python benchmarks/attention_selector.py NAME [PYTHON]

NAME is a stack whose GPU build of vLLM is installed (``vllm-0.19.1-cu128``). In a child of the target the platform is
vLLM's own CUDA platform with a made-up compute capability, and these are asked: ``get_valid_backends`` (which
attention), ``get_flash_attn_version`` (which version of flash attention), ``ChunkGatedDeltaRule`` (which prefill for
gated delta net). No kernel runs. Where there is no driver, an empty libcuda.so.1 that answers "no device" to
everything is compiled first, since the extensions do not load without one. Ends with 1 when table and vLLM disagree.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runbook import pins
from runbook.binaries import symbols
from runbook.parse import attention
from runbook.probes.live import LiveProbe, target_env
from runbook.workspace import workspace

CAPS = ("7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.3", "11.0", "12.0", "12.1")
HEADS, DTYPES, KV = (64, 80, 128, 256, 320), ("float16", "bfloat16", "float32"), ("auto", "fp8")
PREFILLS = ("auto", "flashinfer", "triton")
ASK = """
import contextlib, io, json, sys
import torch
import vllm.platforms as platforms
import vllm.platforms.cuda as cuda
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.selector import AttentionSelectorConfig
caps, heads, dtypes, kinds, prefills = json.load(sys.stdin)
class Made(cuda.CudaPlatformBase):
    cap = None
    @classmethod
    def get_device_capability(cls, device_id=0):
        return cls.cap
    @classmethod
    def get_device_name(cls, device_id=0):
        return "made up"
    @classmethod
    def get_device_total_memory(cls, device_id=0):
        return 80 << 30
platforms._current_platform = Made()
from vllm.model_executor.layers.mamba.gdn_linear_attn import ChunkGatedDeltaRule
from vllm.v1.attention.backends.fa_utils import get_flash_attn_version
out = {"attention": [], "flash": [], "gdn": []}
for cap in caps:
    Made.cap = DeviceCapability(*(int(part) for part in cap.split(".")))
    with set_current_vllm_config(VllmConfig()):
        for head in heads:
            out["flash"].append([cap, head, get_flash_attn_version(head_size=head)])
            for dtype in dtypes:
                for kv in kinds:
                    asked = AttentionSelectorConfig(head, getattr(torch, dtype), kv, None)
                    valid, bad = Made.get_valid_backends(Made.cap, asked, 16)
                    best = sorted(valid, key=lambda one: one[1])[0][0].name if valid else None
                    out["attention"].append([cap, head, dtype, kv, best])
        for prefill in prefills:
            config = VllmConfig(additional_config={"gdn_prefill_backend": prefill} if prefill != "auto" else {})
            with set_current_vllm_config(config):
                made = ChunkGatedDeltaRule()
                out["gdn"].append([cap, prefill, "flashinfer" if made._forward_method == made.forward_cuda else "triton"])
print(json.dumps(out))
"""


def stand_in(site: Path, folder: Path) -> int:
    """Compile a libcuda.so.1 with the functions that vLLM's extensions want, each answering 100 (no device); how many."""
    wanted: set[str] = set()
    for path in (*site.glob("vllm/*.so"), *site.glob("vllm/vllm_flash_attn/*.so")):
        library = symbols.Library(path)
        if "libcuda.so.1" in library.needed:
            names = {one.name.decode() for one in library.undefined().values()}
            wanted |= {name for name in names if name.startswith("cu") and name[2:3].isupper()}
    (folder / "none.c").write_text("".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(wanted)), encoding="utf-8")  # fmt: skip
    argv = [
        "gcc",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libcuda.so.1",
        "-o",
        str(folder / "libcuda.so.1"),
        str(folder / "none.c"),
    ]
    subprocess.run(argv, check=True)
    return len(wanted)


def theirs(python: Path, env: dict[str, str]) -> dict[str, Any]:
    """What vLLM answers."""
    asked = json.dumps([CAPS, HEADS, DTYPES, KV, PREFILLS])
    ran = subprocess.run(
        [python, "-c", ASK], input=asked, env=env, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        sys.exit(ran.stderr[-3000:])
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Ask both and compare."""
    stack = pins.stack(sys.argv[1])
    work = workspace()
    python = Path(sys.argv[2]) if sys.argv[2:] else work.target_python(stack.name)
    site = Path(LiveProbe(work, stack.name, python).places["{site}"])
    env = target_env(work, stack.name, python)
    with tempfile.TemporaryDirectory() as folder:
        if not Path("/dev/nvidia0").exists():
            count = stand_in(site, Path(folder))
            env["LD_LIBRARY_PATH"] = folder
            print(
                f"no driver here: a libcuda.so.1 of {count} functions stands in, so that the extensions load"
            )
        answers = theirs(python, env)
    apart = 0
    shown: dict[str, list[str]] = {}
    for what, theirs_, ours, usual in compared(stack.vllm, answers):
        apart += theirs_ != ours
        if theirs_ != ours:
            print(f"APART {what}: vLLM {theirs_}, table {ours}")
        if usual:
            shown.setdefault(what.split()[1], []).append(f"{what.split()[0]} {theirs_}")
    print("head size 256, bfloat16 (float16 below 8.0), KV cache auto, --gdn-prefill-backend not given:")
    for cap, words in shown.items():
        print(f"  {cap:5} " + "  ".join(word.ljust(20) for word in words).rstrip())
    count = sum(len(rows) for rows in answers.values())
    print(f"{count} answers of vLLM {stack.vllm}, {apart} otherwise than the table")
    sys.exit(1 if apart else 0)


def compared(version: str, answers: dict[str, Any]) -> Iterator[tuple[str, Any, Any, bool]]:
    """What was asked, vLLM's answer, the table's, and whether it is the case of Qwen3.5 as served."""
    for cap, head, dtype, kv, best in answers["attention"]:
        ours = attention.choose(version, cap, attention.Model(head, dtype, kv))
        usual = (head, dtype, kv) == (256, attention.dtype_on(cap, "bfloat16"), "auto")
        yield (
            f"attention {cap} head {head} {dtype} kv {kv}",
            best,
            (ours.backend or None) if ours else None,
            usual,
        )
    for cap, head, number in answers["flash"]:
        found = attention.flash_version(version, cap, head) if attention.takes_flash(version, cap) else None
        yield f"flash {cap} head {head}", number, found.version if found else None, head == HEADS[3]
    for cap, planned, backend in answers["gdn"]:
        rule = attention.gdn(version, cap, planned)
        yield f"gdn {cap} {planned}", backend, rule.backend if rule else None, planned == PREFILLS[0]


if __name__ == "__main__":
    main()
