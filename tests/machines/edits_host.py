"""Edited copies about the machine itself."""

import re

from editing import Edited

from runbook.model import Verdict

MACHINES = [
    Edited(
        "cpu-memory-taken",
        "cpu-2core",
        "vllm-0.32.0-cpu",
        "2 cores, 24 GiB of which 2 GiB are free, no GPU",
        ("MemAvailable is 2000 MiB",),
        {"read /proc/meminfo": lambda text: re.sub(r"(?m)^(MemAvailable:\s+)\d+", rf"\g<1>{2000 * 1024}", text)},
        {"HOST-004": Verdict.FAIL},
    ),
]
