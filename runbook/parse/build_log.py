"""What the log of a compile says: how far it is, which error came first, and what killed it.

ninja prints ``[12/73] command`` when a step has ended, and goes on with what is running after one has failed, so the last
lines of a failed build are noise and the first error is what counts.
"""

import re

_STEP = re.compile(r"^\[(\d{1,5})/(\d{1,5})\] ", re.MULTILINE | re.ASCII)
_FILE = re.compile(r" -c (?:\S*/)?([^/\s]+\.(?:cu|cpp|cc|c)) ")
# g++ and clang: x.h:10:10: fatal error: ...; nvcc and cudafe++: x.cu(12): error: ...; nvcc itself: nvcc fatal : ...
_COMPILER = re.compile(
    r"^(?!.*(?:\bwarning:|: in function ))(?:.*(?:\bfatal error|[:)] error(?: #\S+)?|\berror\s*): .*|nvcc (?:fatal|error)\s*: .*|ptxas (?:fatal|error)\s*: .*|(?:\S*/)?ld(?:\.\w+)?: .*|.*undefined reference to .*)$",
    re.MULTILINE,
)  # fmt: skip
_PYTHON = re.compile(r"^\s*((?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception)\b: .*)$", re.MULTILINE)
_FULL = re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE)
_KILLED = re.compile(
    r"Killed signal terminated program|died due to signal 9\b|\bKilled$|exit status 137|returned -9\b|virtual memory exhausted|std::bad_alloc|out of memory allocating",
    re.MULTILINE,
)  # fmt: skip


def progress(log: str) -> tuple[int, int] | None:
    """(steps done, steps in all) by ninja's last counter; None before the first."""
    found = _STEP.findall(log)
    return (int(found[-1][0]), int(found[-1][1])) if found else None


def last_file(log: str) -> str:
    """The source that was compiled last; "" when no step has ended."""
    steps = [line for line in log.splitlines() if _STEP.match(line)]
    found = _FILE.search(steps[-1]) if steps else None
    return found[1] if found else ""


def first_error(log: str) -> str:
    """The compiler's first error, else what Python raised last; "" for a log without either."""
    if found := _COMPILER.search(log):
        return found[0].strip()
    raised = _PYTHON.findall(log)
    return str(raised[-1]).strip() if raised else ""


def disk_full(log: str) -> str:
    """The first line that says so, or ""."""
    return _line(log, _FULL)


def killed(log: str) -> str:
    """The first line that says that a compiler was killed or got no memory, or ""."""
    return _line(log, _KILLED)


def oom_kills(vmstat: str | None) -> int | None:
    """How often this kernel killed a process for memory since boot (``oom_kill`` of /proc/vmstat; Linux 4.13 and later)."""
    found = re.search(r"(?m)^oom_kill (\d{1,18})$", vmstat or "", re.ASCII)
    return int(found[1]) if found else None


def _line(log: str, pattern: re.Pattern[str]) -> str:
    return next((line.strip() for line in log.splitlines() if pattern.search(line)), "")
