"""Environments that are really broken, each in one way, and which checks name the cause.

As a program it builds them for a stack and judges them; it needs uv and an index or a filled cache, and hard-links from
that cache, so five GPU targets of 10 GB take little disk:

    python tests/walk/breaking.py --stack vllm-0.19.1-cu128 --out FOLDER [--only NAME ...] [--keep]

``--out`` lies on the file system of uv's cache. Files are hard links: they are removed and replaced, never written to.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook import pins

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
LAYERS = ("PY", "TORCH", "FLASH", "ARCH", "ABI", "VLLM", "CUDA")
# A fork of flash-attn that has wheels where flash-attn itself has source only: the same kernels, for torch 2.4.0.
FORK = "vllm-flash-attn==2.6.2"


def uv(*words: str) -> None:
    """Run uv as the walk does."""
    env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    ran = subprocess.run(
        [Path(sys.executable).with_name("uv"), *words, "--color", "never"],
        env={**env, "UV_LINK_MODE": "hardlink"},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"uv {' '.join(words)}: {ran.stderr[-2000:]}")


@dataclass(frozen=True)
class Target:
    """A virtual environment made from a stack's lock."""

    python: Path
    stack: pins.Stack

    @property
    def site(self) -> Path:
        """Its site-packages."""
        return self.python.parents[1] / "lib" / f"python{MINOR}" / "site-packages"

    @property
    def gpu(self) -> bool:
        """True for the stack of the mission."""
        return self.stack.device == "cuda"

    def put(self, *packages: str) -> None:
        """Install without looking at what others ask, as ``pip install --no-deps`` does."""
        uv("pip", "install", "--python", str(self.python), "--no-deps", *packages)


def whole(folder: Path, stack: str) -> Target:
    """A new environment that is as its lock says."""
    python = folder / "bin" / "python"
    shutil.rmtree(folder, ignore_errors=True)
    uv("venv", "--python", MINOR, "--no-project", str(folder))
    uv("pip", "sync", "--python", str(python), "--require-hashes", str(pins.stack(stack).lock(MINOR)))
    return Target(python, pins.stack(stack))


def other_torchvision(target: Target) -> None:
    """torchvision of another torch."""
    target.put("torchvision==0.24.1" if target.gpu else "torchvision==0.28.0")


def swapped_numpy(target: Target) -> None:
    """A numpy that numba 0.61 does not take."""
    target.put("numpy==2.4.6" if target.gpu else "numpy==2.3.5")


def other_torch(target: Target) -> None:
    """torch for CUDA 13 under a vLLM for CUDA 12, with what it asks for; on the CPU without, as only its name counts there."""
    torch = "torch===2.13.0"  # three signs: not 2.13.0+cpu
    if target.gpu:
        uv("pip", "install", "--python", str(target.python), torch)
    else:
        target.put(torch)


def other_flash_attn(target: Target) -> None:
    """The extension of FORK, built for torch 2.4.0, under the names that flash-attn has; a real file, not a made-up one."""
    target.put(FORK)
    site = target.site
    (extension,) = site.glob("vllm_flash_attn_2_cuda.*.so")
    extension.rename(site / extension.name.removeprefix("vllm_"))
    (site / "vllm_flash_attn").rename(site / "flash_attn")
    (old,) = site.glob("vllm_flash_attn-*.dist-info")
    new = old.rename(site / old.name.removeprefix("vllm_"))
    changed = [*(site / "flash_attn").glob("*.py"), new / "METADATA"]
    for path in changed:
        text = (
            path.read_text(encoding="utf-8")
            .replace("vllm_flash_attn", "flash_attn")
            .replace("vllm-flash-attn", "flash-attn")
        )
        # flash-attn's own metadata asks for torch of any version.
        replaced(path, re.sub(r"(?m)^Requires-Dist: torch==\S+$", "Requires-Dist: torch", text))
    record = (new / "RECORD").read_text(encoding="utf-8").replace("vllm_flash_attn", "flash_attn")
    for path in changed:
        name = re.escape(str(path.relative_to(site)))
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).rstrip(b"=").decode()
        record = re.sub(
            rf"(?m)^{name},.*$", f"{path.relative_to(site)},sha256={digest},{path.stat().st_size}", record
        )
    replaced(new / "RECORD", record)


def replaced(path: Path, text: str) -> None:
    """Another file in the place of a hard link: the one in uv's cache stays as it is."""
    path.unlink()
    path.write_text(text, encoding="utf-8")


def deleted_library(target: Target) -> None:
    """vLLM's own extension is gone; on the GPU stack cuBLAS as well."""
    gone = [*target.site.glob("vllm/_C.*so")]
    if target.gpu:
        gone += target.site.glob("nvidia/cublas/lib/libcublas.so.12")
    if not gone:
        raise SystemExit(f"no extension of vLLM in {target.site}")
    for path in gone:
        path.unlink()


@dataclass(frozen=True)
class Broken:
    """A way to break a target. ``named_by``: check -> what it shows of the cause; ``dies`` is a program that shows the damage."""

    name: str
    apply: Callable[[Target], None]
    named_by: dict[str, str]
    dies: str


WAYS = (
    Broken(
        "torchvision",
        other_torchvision,
        {
            "PY-004": "torchvision",
            "PY-015": "asks torch ==2",
            "TORCH-008": "torchvision",
            "ABI-003": "torchvision",
        },
        "import torchvision",
    ),
    Broken(
        "numpy", swapped_numpy, {"PY-004": "numpy", "PY-015": "numba 0.61.2 asks numpy <2.3"}, "import numba"
    ),
    Broken(
        "torch",
        other_torch,
        {
            "PY-004": "torch",
            "PY-014": "CUDA 13.0",
            "PY-015": "2.13.0",
            "TORCH-001": "2.13.0",
            "ABI-002": "vllm/_C",
        },
        "import torchvision",
    ),
    Broken(
        "flash-attn",
        other_flash_attn,
        {"FLASH-002": "flash-attn", "FLASH-005": "flash_attn", "FLASH-006": "flash_attn_2_cuda"},
        "import torch, flash_attn",
    ),
    Broken(
        "deleted",
        deleted_library,
        {"PY-016": "vllm/_C.abi3.so", "VLLM-008": "vllm/_C.abi3.so"},
        "import torch, vllm._C",
    ),
)
STACKS = ("vllm-0.19.1-cu128", "vllm-0.19.1-cpu")


def runbook(target: Target, home: Path, *words: str) -> list[dict[str, Any]]:
    """The findings of ``runbook check`` on that environment."""
    command = [
        sys.executable,
        "-m",
        "runbook",
        "check",
        *words,
        "--format",
        "json",
        "--target",
        str(target.python),
        "--stack",
        target.stack.name,
    ]
    env = {name: value for name, value in os.environ.items() if not name.startswith("RUNBOOK_")}
    ran = subprocess.run(
        command,
        env={**env, "RUNBOOK_HOME": str(home), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        found: list[dict[str, Any]] = json.loads(ran.stdout)
    except ValueError as why:
        raise SystemExit(f"runbook check gave no findings: {ran.stdout[-500:]} {ran.stderr[-2000:]}") from why
    return found


def words_of(finding: dict[str, Any]) -> str:
    """Everything a finding says."""
    shown = [f"{one['name']} {one['value']}" for one in finding["evidence"]]
    return " ".join([*shown, finding["reason"] or "", (finding["fix"] or {}).get("text", "")])


def damage(target: Target, program: str) -> str:
    """What a user would see: the last line of the error, or "" when the program ends well."""
    ran = subprocess.run([target.python, "-c", program], capture_output=True, text=True, check=False, cwd="/")
    lines = (ran.stderr.strip() or "no word").splitlines()
    return "" if ran.returncode == 0 else f"exit code {ran.returncode}: {lines[-1][:200]}"


def main() -> None:
    """Build, break, judge, print one row each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stack", default=pins.MISSION, choices=STACKS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--keep", action="store_true", help="leave the broken environments there")
    asked = parser.parse_args()
    for way in WAYS:
        if asked.only and way.name not in asked.only:
            continue
        began = time.monotonic()
        target = whole(asked.out / way.name, asked.stack)
        way.apply(target)
        built = time.monotonic() - began
        findings = runbook(target, asked.out / "home", *LAYERS, "--cost", "inside")
        bad = {one["id"]: words_of(one) for one in findings if one["verdict"] in ("fail", "warn")}
        named = [ident for ident, word in way.named_by.items() if word in bad.get(ident, "")]
        missed = [ident for ident in way.named_by if ident not in named]
        said = [f"{way.name}: built in {built:.1f} s; really: {damage(target, way.dies) or 'no error'}"]
        said += [f"    {ident}: {words[:240]}" for ident, words in bad.items()]
        said += [f"    cause named by {' '.join(named) or 'nobody'}, missed by {' '.join(missed) or 'none'}"]
        sys.stdout.write("\n".join(said) + "\n")
        sys.stdout.flush()
        if not asked.keep:
            shutil.rmtree(target.python.parents[1])


if __name__ == "__main__":
    main()
