"""``runbook collect`` against ``python -m vllm.collect_env`` of the same targets: time, memory, facts; see README.md."""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

TARGET_S = 1.0
TARGET_MB = 60
RULE = "=" * 30
# Which packages their report shows, by parts of the name (vllm/collect_env.py).
SHOWN = ("torch", "numpy", "mypy", "flake8", "triton", "optree", "onnx", "nccl", "transformers", "zmq", "nvidia", "pynvml", "flashinfer-python", "helion")  # fmt: skip
NOT_SAID = re.compile(r"Could not collect|No CUDA|N/A|None|not set|not asked|$")
# The judge: the target itself, asked in a third way that neither report uses.
TRUTH = """
import importlib.metadata as m, json, re, sys
facts = {"packages": {re.sub(r"[-_.]+", "-", d.metadata["Name"]).lower(): d.version for d in m.distributions()}}
facts["Python version"] = sys.version.replace(chr(10), " ")
try:
    import torch
    facts["PyTorch version"] = torch.__version__
    facts["Is debug build"] = str(torch.version.debug)
    facts["CUDA used to build PyTorch"] = str(torch.version.cuda)
    facts["Is CUDA available"] = str(torch.cuda.is_available())
    cudnn = torch.backends.cudnn.version()
    facts["cuDNN version"] = f"{cudnn // 10000}.{cudnn // 100 % 100}.{cudnn % 100}" if cudnn else ""
except Exception as why:
    facts["torch"] = repr(why)
print(json.dumps(facts))
"""


def once(words: list[str], env: dict[str, str], folder: str) -> dict[str, Any]:
    """One call: wall seconds, peak MB of the process or a child of it, exit code, what it printed."""
    out, err = Path(folder) / "out", Path(folder) / "err"
    began = time.perf_counter()
    with out.open("wb") as to, out.with_name("err").open("wb") as complaints:
        process = subprocess.Popen(words, env=env, cwd=folder, stdout=to, stderr=complaints)
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    return {
        "s": time.perf_counter() - began,
        "mb": usage.ru_maxrss * 1024 / 1e6,
        "rc": code,
        "out": out.read_text(errors="replace"),
        "last_error": "".join(err.read_text(errors="replace").strip().splitlines()[-1:]),
    }


def sections(text: str) -> dict[str, list[str]]:
    """Heading -> lines of a report."""
    found: dict[str, list[str]] = {}
    lines = text.splitlines()
    heading = ""
    for place, line in enumerate(lines):
        if line == RULE:
            continue
        if place and lines[place - 1] == RULE and place + 1 < len(lines) and lines[place + 1] == RULE:
            heading = line.strip()
        found.setdefault(heading, []).append(line)
    return found


def facts(text: str) -> dict[str, dict[str, str]]:
    """What a report says: by label, by package, by variable."""
    parts = sections(text)
    labels: dict[str, str] = {}
    label = ""
    for heading in ("System Info", "PyTorch Info", "Python Environment", "CUDA / GPU Info", "vLLM Info"):
        for line in parts.get(heading, []):
            if found := re.match(r"([A-Za-z][A-Za-z_/ ]+?) *: ?(.*)$", line):
                label = found[1]
                labels[label] = found[2]
            elif label and line.strip() and not labels[label]:
                labels[label] = line.strip()  # the first of several lines below a label
    packages = {}
    for line in parts.get("Versions of relevant libraries", []):
        if found := re.match(r"\[pip3?\] ([^=\s]+)==(\S+)", line):
            name = re.sub(r"[-_.]+", "-", found[1]).lower()
            if any(part in name for part in SHOWN):
                packages[name] = found[2]
    variables = dict(
        line.split("=", 1) for line in parts.get("Environment Variables", []) if re.match(r"\w+=", line)
    )
    return {"label": labels, "package": packages, "variable": variables}


def same(one: str | None, other: str | None) -> bool:
    """True when both say nothing, or one begins as the other does."""
    first, second = one or "", other or ""
    if NOT_SAID.match(first) and NOT_SAID.match(second):
        return True
    return bool(first and second) and (first.startswith(second) or second.startswith(first))


def agrees(said: str | None, true: str) -> bool:
    """True when a report's words hold what the judge read; "" is a fact that is not there."""
    return true in said if said and true else not said and not true


def disagreements(ours: str, theirs: str, truth: dict[str, Any], env: dict[str, str]) -> list[dict[str, Any]]:
    """Facts that both reports could have and tell differently, and who is right by the judge."""
    mine, other = facts(ours), facts(theirs)
    rows = []
    for kind in ("label", "package", "variable"):
        for name in sorted(set(mine[kind]) | set(other[kind])):
            one, two = mine[kind].get(name), other[kind].get(name)
            if (kind == "label" and None in (one, two)) or same(one, two):
                continue
            if kind == "package":
                true = truth["packages"].get(name, "")
            elif kind == "variable":
                true = env.get(name, "")
            else:
                true = truth.get(name)
            right = [
                who
                for who, said in (("ours", one), ("theirs", two))
                if true is not None and agrees(said, true)
            ]
            if kind == "label" and one and one.startswith("not asked"):
                right.append("ours says that it did not ask")
            verdict = ", ".join(right) or ("no judge" if true is None else "neither")
            rows.append(
                {"kind": kind, "fact": name, "ours": one, "theirs": two, "true": true, "right": verdict}
            )
    return rows


def spread(calls: list[dict[str, Any]]) -> dict[str, float]:
    """Median, least and most seconds, and peak MB."""
    seconds = [one["s"] for one in calls]
    return {
        "wall_s": round(statistics.median(seconds), 3),
        "min_s": round(min(seconds), 3),
        "max_s": round(max(seconds), 3),
        "peak_mb": round(max(one["mb"] for one in calls), 1),
    }


def compared(
    python: Path, env: dict[str, str], without_uv: dict[str, str], asked: argparse.Namespace
) -> dict[str, Any]:
    """Both reports of one target, in turn."""
    ours = [sys.executable, "-m", "runbook", "collect", "--target", str(python)]
    theirs = [str(python), "-m", "vllm.collect_env"]
    with tempfile.TemporaryDirectory() as folder:
        once(ours, env, folder)
        quick = [once(ours, env, folder) for _ in range(asked.calls)]
        once(theirs, env, folder)
        slow = [once(theirs, env, folder) for _ in range(asked.their_calls)]
        bare = once(theirs, without_uv, folder)
        judge = once([str(python), "-I", "-c", TRUTH], env, folder)
    truth = json.loads(judge["out"])
    if any(one["rc"] for one in quick):
        raise SystemExit(f"runbook collect failed: {quick[-1]['last_error']}")
    listed = facts(quick[-1]["out"])["package"]
    wrong = {name: version for name, version in listed.items() if truth["packages"].get(name) != version}
    missed = [
        name for name in truth["packages"] if any(part in name for part in SHOWN) and name not in listed
    ]
    rows = disagreements(quick[-1]["out"], slow[-1]["out"], truth, env)
    mine, other = spread(quick), spread(slow)
    return {
        "target": str(python),
        "torch": truth.get("PyTorch version", truth.get("torch")),
        "ours": mine,
        "theirs": {**other, "rc": slow[-1]["rc"], "last_error": slow[-1]["last_error"] if slow[-1]["rc"] else ""},
        "theirs_without_uv_on_path": {"rc": bare["rc"], "last_error": bare["last_error"] if bare["rc"] else ""},
        "ratio": {
            "wall": round(other["wall_s"] / mine["wall_s"], 1),
            "memory": round(other["peak_mb"] / mine["peak_mb"], 1),
        },
        "packages": {
            "ours": len(listed),
            "theirs": len(facts(slow[-1]["out"])["package"]),
            "true": sum(any(part in name for part in SHOWN) for name in truth["packages"]),
            "ours_wrong_or_missed": [*wrong, *missed],
        },
        "agree_on": sorted(
            name
            for name, said in facts(quick[-1]["out"])["label"].items()
            if name in facts(slow[-1]["out"])["label"] and same(said, facts(slow[-1]["out"])["label"][name])
        ),
        "disagree_on": rows,
        "met": mine["wall_s"] <= TARGET_S and mine["peak_mb"] <= TARGET_MB and not wrong and not missed
        and not any(row["right"] in ("theirs", "neither") for row in rows),
    }  # fmt: skip


def main() -> None:
    """Measure, print JSON, exit 1 when ours is slow, large or wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "targets", nargs="+", type=Path, metavar="PYTHON", help="interpreters with vLLM in them"
    )
    parser.add_argument("--calls", type=int, default=10, help="how many calls of ours are measured")
    parser.add_argument("--their-calls", type=int, default=3, help="how many of theirs")
    asked = parser.parse_args()
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("RUNBOOK_", "VIRTUAL_ENV"))
    }
    with tempfile.TemporaryDirectory() as folder:
        # Theirs needs uv on PATH for an environment that uv made: given to both, and one call without it is shown.
        uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
        (Path(folder) / "uv").symlink_to(uv)
        env = {**kept, "PATH": f"{folder}{os.pathsep}{kept['PATH']}", "RUNBOOK_HOME": f"{folder}/home"}
        plain = os.pathsep.join(
            one for one in kept["PATH"].split(os.pathsep) if not (Path(one) / "uv").exists()
        )
        load = round(os.getloadavg()[0], 2)
        rows = [compared(one.absolute(), env, {**env, "PATH": plain}, asked) for one in asked.targets]
    found = {
        "benchmark": "collect",
        "calls": {"ours": asked.calls, "theirs": asked.their_calls, "warm_ups": 1},
        "limits": {"wall_s": TARGET_S, "peak_mb": TARGET_MB},
        "python": sys.version.split()[0],
        "cores": os.cpu_count(),
        "load_at_start": load,
        "targets": rows,
        "met": all(row["met"] for row in rows),
    }
    print(json.dumps(found, indent=1))
    sys.exit(0 if found["met"] else 1)


if __name__ == "__main__":
    main()
