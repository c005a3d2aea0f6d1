"""How long a large log takes, and how much memory: ``python benchmarks/triage_size.py [--mb 100 1000]``.

A real log of a start (406 lines) is written again and again, and one of errors alone, each read by a process of its own.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DATA = Path(__file__).parent.parent / "tests" / "data"
ERROR = b"(EngineCore pid=12) ERROR 11-30 05:00:00 [core.py:1100] ValueError: something bad happened here\n"
MB = 1_000_000


def one(path: str) -> None:
    """Read a log in this process and print what it took."""
    from runbook import triage  # noqa: PLC0415 - its import is part of the time

    began, used = time.perf_counter(), time.process_time()
    found = triage.read_file(path)
    seconds, cpu = time.perf_counter() - began, time.process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB
    print(
        f"{found.verdict:8} {found.lines:>10,} lines {seconds:6.2f} s ({cpu:.2f} s of processor) {peak:6.0f} MB"
    )


def main() -> None:
    """Write the logs, read each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--read", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.read:
        one(asked.read)
        return
    start = max(
        (DATA / "healthy").glob("*few-requests.log"), key=lambda path: path.stat().st_size
    ).read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        for size in asked.mb:
            for name, text in (("starts", start), ("errors", ERROR * 1000)):
                path = Path(folder) / f"{name}.log"
                with path.open("wb") as out:
                    for _ in range(size * MB // len(text)):
                        out.write(text)
                print(f"{size:5} MB of {name:7}", end=" ", flush=True)
                subprocess.run([sys.executable, __file__, "--read", str(path)], check=True)
                path.unlink()


if __name__ == "__main__":
    main()
