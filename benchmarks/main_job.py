"""Seconds a page of the main job, first run and second run of a fresh workspace; see README.md beside this file."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any


def rows(journal: Path) -> list[dict[str, Any]]:
    """The rows of a run's journal."""
    return [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]


def run(env: dict[str, str], out: Path, words: list[str]) -> dict[str, Any]:
    """One ``runbook run``: wall seconds, exit code, seconds a page and the longest step of each."""
    began = time.monotonic()
    command = [sys.executable, "-m", "runbook", "run", *words, "--out", str(out)]
    code = subprocess.run(command, env=env, stdout=sys.stderr, check=False).returncode
    wall = time.monotonic() - began
    journal = rows(out / "events.jsonl")
    pages = []
    for end in journal:
        if end["event"] != "page-end":
            continue
        steps = [
            row
            for row in journal
            if row["event"] == "end" and (row["page"], row["stack"]) == (end["page"], end["stack"])
        ]
        none: dict[str, Any] = {"step": "", "duration_s": 0.0}
        longest = max(steps, key=lambda row: row["duration_s"], default=none)
        pages.append(
            {
                "page": end["page"],
                "stack": end["stack"],
                "state": end["state"],
                "seconds": round(end["duration_s"], 1),
                "longest_step": longest["step"],
                "longest_step_s": round(longest["duration_s"], 1),
            }
        )
    return {"exit_code": code, "wall_s": round(wall, 1), "pages": pages}


def table(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Both runs side by side, as Markdown."""
    lines = [
        "| page | stack | first run (s) | second run (s) | longest step of the first |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    again = {(one["page"], one["stack"]): one["seconds"] for one in second["pages"]}
    lines += [
        f"| {one['page']} | {one['stack']} | {one['seconds']:.1f} | {again.get((one['page'], one['stack']), '-')} |"
        f" {one['longest_step']} {one['longest_step_s']:.1f} |"
        for one in first["pages"]
    ]
    return "\n".join([*lines, f"| all, wall | | {first['wall_s']:.1f} | {second['wall_s']:.1f} | |"])


def main() -> None:
    """Run twice, print the table to stderr and JSON to stdout; exit 1 when a run was not green."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--home", type=Path, help="empty folder for the workspace, kept; default: a temporary one"
    )
    parser.add_argument(
        "--cold-cache", action="store_true", help="give uv an empty cache too (downloads about 5 GB)"
    )
    parser.add_argument("--keep", action="store_true", help="keep a temporary workspace")
    parser.add_argument(
        "words", nargs="*", help="words for runbook run, after --; default: none, the main job"
    )
    asked = parser.parse_args()
    home = (asked.home or Path(tempfile.mkdtemp(prefix="main-job-"))).resolve()
    if home.exists() and any(home.iterdir()):
        parser.error(f"{home} is not empty: a first run would find things there")
    env = {**os.environ, "RUNBOOK_HOME": str(home)}
    if asked.cold_cache:
        env["UV_CACHE_DIR"] = str(home / "uv-cache")
    load = os.getloadavg()[0]
    try:
        first = run(env, home / "runs" / "first", asked.words)
        second = run(env, home / "runs" / "second", asked.words)
    finally:
        if not asked.home and not asked.keep:
            shutil.rmtree(home, ignore_errors=True)
    print(table(first, second), file=sys.stderr)
    facts = {"python": sys.version.split()[0], "cores": os.cpu_count(), "load_at_start": round(load, 2)}
    cache = "empty" if asked.cold_cache else "as it was"
    print(
        json.dumps(
            {"benchmark": "main_job", **facts, "uv_cache": cache, "first": first, "second": second}, indent=1
        )
    )
    sys.exit(1 if first["exit_code"] or second["exit_code"] else 0)


if __name__ == "__main__":
    main()
