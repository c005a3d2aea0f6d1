"""Facts from the log of a vLLM server: what went wrong first, and what it said about its KV cache.

A failed start ends in 'Engine core initialization failed. See root cause above': the line that helps stands earlier,
in the first traceback, behind a process tag. Issue F's triage will judge causes; here only the root line is found.
"""

import re
from dataclasses import dataclass

from runbook.parse.numbers import decimal, whole

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# (EngineCore pid=12) ERROR 11-30 05:00:00 [core.py:1100] text
_TAG = re.compile(
    r"^(?:\[rank\d+\]:\s?)?(?:\([A-Za-z_0-9 ]+(?: pid=\d+)?\)\s*)*(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s+\d\d-\d\d \d\d:\d\d:\d\d\s+(?:\[[^\]]*\]\s?)?)?"
)
_EXCEPTION = re.compile(
    r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Timeout)\b(?::.*)?$|^(?:subprocess\.)?CalledProcessError\b.*$"
)
_USAGE = re.compile(
    r"^\S*(?:api_server\.py|vllm|main\.py|-m)\S*.*: error: .+$|^.*: error: (?:unrecognized|argument|the following).+$"
)
_SHADOWS = (
    "Engine core initialization failed",
    "See root cause above",
    "EngineCore encountered an issue",
    "SystemExit",
    "KeyboardInterrupt",
)
# A request that was refused: the client's fault, told in a traceback all the same (0.19.1 writes some 100 lines for each).
_REFUSED = "VLLMValidationError"
_HARD = re.compile(
    r"^(?:Fatal Python error|Segmentation fault|Illegal instruction|Killed|.*: symbol lookup error:|.*error while loading shared libraries:).*"
)


@dataclass(frozen=True)
class KvCache:
    """What the engine logged about its KV cache; tokens is 'GPU KV cache size' (on a CPU too), concurrency as logged."""

    tokens: int | None
    concurrency: float | None
    block_size: int | None


def plain(line: str) -> str:
    """A log line without colours, process tag, level and place."""
    return _TAG.sub("", _ANSI.sub("", line), count=1).rstrip()


def is_shadow(line: str) -> bool:
    """True for a line that only says that an earlier one has the cause."""
    return any(shadow in line for shadow in _SHADOWS)


def root_line(log: str) -> str | None:
    """The first line that names an exception or a usage error and is no shadow of an earlier one; None when there is none."""
    for raw in log.splitlines():
        line = plain(raw)
        if is_shadow(line) or _REFUSED in line:
            continue
        if _EXCEPTION.match(line) or _USAGE.match(line) or _HARD.match(line):
            return line.strip()
    return None


def kv_cache(log: str) -> KvCache:
    """KV cache figures of the last start in the log."""
    tokens = re.findall(r"KV cache size:\s*([\d,]+) tokens", log)
    concurrency = re.findall(r"Maximum concurrency for [\d,]+ tokens per request:\s*([\d.]+)x", log)
    block = re.findall(r"attention block size to (\d+) tokens", log)
    return KvCache(
        whole(tokens[-1].replace(",", "")) if tokens else None,
        decimal(concurrency[-1]) if concurrency else None,
        whole(block[-1]) if block else None,
    )


def errors(log: str) -> tuple[str, ...]:
    """Lines logged at level ERROR or CRITICAL, without tag."""
    found = [
        raw
        for raw in log.splitlines()
        if re.search(r"(?:^|\) ?)(?:ERROR|CRITICAL) \d\d-\d\d ", _ANSI.sub("", raw))
    ]
    return tuple(plain(raw) for raw in found)
