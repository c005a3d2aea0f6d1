"""``runbook arch`` against NVIDIA's cuobjdump over the same files: is it right, and how quick is it; see README.md beside this file."""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from runbook.binaries import code, tree

COLD_S, WARM_S = 3.0, 0.6
SITE = "import sysconfig; print(sysconfig.get_path('purelib'))"
LISTINGS = {"sass": ("--list-elf", "cubin", "sm_"), "ptx": ("--list-ptx", "ptx", "compute_")}


def timed(argv: list[str], env: dict[str, str]) -> tuple[float, float, int]:
    """(wall seconds, peak MB, exit code) of a program, its output thrown away."""
    began = time.perf_counter()
    child = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    return time.perf_counter() - began, usage.ru_maxrss * 1024 / 1e6, child.returncode


def forget(paths: list[Path]) -> None:
    """Take files out of the page cache, so that the next reader goes to the disk."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def listed(cuobjdump: str, path: Path, key: str) -> set[str]:
    """The targets that cuobjdump lists in a file."""
    option, suffix, prefix = LISTINGS[key]
    done = subprocess.run([cuobjdump, option, str(path)], capture_output=True, text=True, check=False)
    return {prefix + target for target in re.findall(rf"(?m)\.sm_(\w+)\.{suffix}\s*$", done.stdout)}


def compared(cuobjdump: str, site: Path, libraries: list[str]) -> dict[str, Any]:
    """Our reading of each library and cuobjdump's. It prints sm_100 for code of sm_100f, and that much is granted."""
    ours: dict[str, dict[str, Any]] = {}
    began = time.perf_counter()
    for name in libraries:
        if found := code.read(str(site / name)):
            ours[name] = found
    reader_s = time.perf_counter() - began
    differences: list[str] = []
    beyond: dict[str, list[str]] = {}
    began = time.perf_counter()
    for name, found in ours.items():
        # units hold what lies in the section that cuobjdump reads; sass and ptx hold code kept as data as well.
        for place, key in enumerate(LISTINGS, start=1):
            section = {target for unit in found["units"] for target in unit[place]}
            plain = {target.rstrip("f") if key == "sass" else target for target in section}
            theirs = listed(cuobjdump, site / name, key)
            if plain != theirs:
                differences.append(f"{name}: ours {sorted(plain)}, cuobjdump's {sorted(theirs)}")
            if more := sorted(set(found[key]) - section):
                beyond.setdefault(name, []).extend(more)
    cuobjdump_s = time.perf_counter() - began
    without = [name for name in libraries if name not in ours and os.path.getsize(site / name) > 1 << 16]  # noqa: PTH202
    missed = [name for name in without if listed(cuobjdump, site / name, "sass")]
    return {
        "libraries": len(libraries),
        "with_machine_code": len(ours),
        "source_files_in_them": sum(unit[0] for found in ours.values() for unit in found["units"]),
        "differences": differences,
        "seen_by_cuobjdump_alone": missed,
        "beyond_cuobjdump": beyond,
        "reader_s": round(reader_s, 2),
        "cuobjdump_s": round(cuobjdump_s, 2),
    }


def sampled(cuobjdump: str, site: Path, folders: list[str], share: int) -> dict[str, Any]:
    """Every ``share``-th GPU program of each folder, against cuobjdump."""
    differences, count = [], 0
    for folder in folders:
        for path in sorted((site / folder).glob("*.cubin"))[::share]:
            count += 1
            ours = code.cubin(str(path)) or ""
            if {ours.rstrip("f")} != listed(cuobjdump, path, "sass"):
                differences.append(str(path.relative_to(site)))
    return {"compared": count, "one_in": share, "differences": differences}


def main() -> None:
    """Measure, compare, print JSON, exit 1 when a figure is missed or a file is read otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--target", type=Path, required=True, help="interpreter of the environment to look at"
    )
    parser.add_argument("--cuobjdump", default="cuobjdump", help="NVIDIA's tool, of CUDA 12.9 or newer")
    parser.add_argument("--share", type=int, default=100, help="one in so many .cubin files is compared")
    parser.add_argument(
        "--evict", action="store_true", help="for the first call take the libraries out of the page cache"
    )
    asked = parser.parse_args()
    found = subprocess.run([str(asked.target), "-I", "-c", SITE], capture_output=True, text=True, check=True)
    site = Path(found.stdout.strip()).resolve()
    seen = tree.walk(str(site))
    libraries = sorted(seen.libraries)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "RUNBOOK_HOME": home}
        words = [
            sys.executable,
            "-m",
            "runbook",
            "arch",
            "--target",
            str(asked.target),
            "--gpu",
            "H200",
            "--gpu",
            "RTX 5090",
        ]
        timed([sys.executable, "-m", "runbook", "--version"], env)
        if asked.evict:
            forget([site / name for name in libraries])
        cold = timed(words, env)
        warm = sorted(timed(words, env) for _ in range(5))
        argv = [sys.executable, "-m", "runbook.binaries", str(site), "--cache", f"{home}/caches/binaries"]
        question = sorted(timed(argv, env) for _ in range(5))
    figures: dict[str, Any] = {
        "benchmark": "arch",
        "from_disk": asked.evict,
        "arch_first_s": {
            "seconds": round(cold[0], 2),
            "target": None if asked.evict else COLD_S,
            "peak_mb": round(cold[1], 1),
            "exit_code": cold[2],
        },
        "arch_again_s": {"median": round(warm[2][0], 3), "target": WARM_S, "peak_mb": round(warm[2][1], 1)},
        "question_again_s": round(question[2][0], 3),
        **compared(asked.cuobjdump, site, libraries),
        "cubins": sampled(asked.cuobjdump, site, sorted(seen.cubins), asked.share),
        "cores": os.cpu_count(),
        "load_at_start": round(load, 2),
    }
    figures["met"] = (
        (asked.evict or cold[0] <= COLD_S)
        and warm[2][0] <= WARM_S
        and not figures["differences"]
        and not figures["seen_by_cuobjdump_alone"]
        and not figures["cubins"]["differences"]
    )
    print(json.dumps(figures, indent=1))
    sys.exit(0 if figures["met"] else 1)


if __name__ == "__main__":
    main()
