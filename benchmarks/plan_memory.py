"""The memory planner against what real starts logged: one line a start, its error in KV tokens, and the largest.

    python benchmarks/plan_memory.py

It needs no GPU and starts nothing; the starts are in ``runbook/tables/memory_runs.json``. Exit code 1 beyond 2 %.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from runbook import catalogue
from runbook.memory import runs

TARGET = 0.02
GENERATE = Path(__file__).parents[1] / "runbook" / "inside" / "make_model.py"


def config_of(model: str) -> dict[str, Any]:
    """The config of a published or of a generated model."""
    known = catalogue.find(model)
    if known is not None:
        return known.config
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / model
        subprocess.run(
            [sys.executable, str(GENERATE), "--kind", model, "--out", str(out)],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        config: dict[str, Any] = json.loads((out / "config.json").read_text(encoding="utf-8"))
    return config


def main() -> int:
    """Print the table."""
    configs = {model: config_of(model) for model in {row["model"] for row in runs.rows()}}
    worst = 0.0
    print(f"{'vLLM':<8}{'machine':<10}{'model':<24}{'flags':<54}{'logged':>10}{'planned':>10}{'error':>9}")
    for row in runs.rows():
        run = runs.planned(row, configs[row["model"]])
        worst = max(worst, abs(run.error))
        flags = (
            ", ".join(f"{key} {value}" for key, value in row["flags"].items())
            .replace("max_num_batched_tokens", "batched")
            .replace("max_model_len", "len")
            .replace("max_num_seqs", "seqs")
        )
        print(
            f"{row['vllm']:<8}{row['machine'].split(',')[0]:<10}{row['model'].split('/')[-1]:<24}{flags:<54}{row['kv_tokens']:>10,}{run.plan.kv_tokens:>10,}{run.error:>+9.2%}"
        )
    print(f"{len(runs.rows())} starts, largest error {worst:.2%}")
    return int(worst > TARGET)


if __name__ == "__main__":
    sys.exit(main())
