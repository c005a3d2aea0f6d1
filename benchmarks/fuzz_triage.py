"""Coverage-guided fuzzing of the reading of logs: any bytes are read, what is shown is harmless, JSON holds its contract.

``python benchmarks/fuzz_triage.py -max_total_time=600`` (arguments are libFuzzer's). It wants ``atheris``
(https://github.com/google/atheris), which is not in our locks: pip install atheris into a copy of the environment.
A finding ends it with a traceback and leaves the input in ``crash-*``.
"""

import io
import json
import sys
import unicodedata

import atheris

with atheris.instrument_imports(include=["runbook.triage"]):
    from runbook import triage, triaged
    from runbook.errors import BadParameter
    from runbook.triage import judge

SEEDS = (
    b"ValueError: No available memory for the cache blocks.\n",
    b"\x1b[31mERROR\x1b[0m 11-30 05:00:00 [core.py:1] torch.OutOfMemoryError: CUDA out of memory.\n",
    "ERROR \u202e x\n".encode(),
    b"\x1f\x8b\x08",
    b"\xff\xfeE\x00\n\x00",
)


def one_input(data: bytes) -> None:
    """What must hold for any log; the first byte says which seed goes before it."""
    log = SEEDS[data[0] % len(SEEDS)] + data[1:] if data[:1] > b"\x80" else data
    try:
        found = triage.read([("", io.BytesIO(log))])
    except BadParameter:
        if log[:2] != b"\x1f\x8b":
            raise
        return
    shown = triaged.as_text(found)
    for one in shown:
        if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp") and one not in "\n\t":
            raise AssertionError(f"{one!r} is shown")
    row = json.loads(json.dumps(triaged.as_json(found)))
    if row["verdict"] not in (judge.CAUSE, judge.NONE, judge.HEALTHY):
        raise AssertionError(row["verdict"])


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
