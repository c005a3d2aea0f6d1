"""Serve the tiny checkpoints as they are and with one thing changed, and say how far each is from transformers.

    python benchmarks/parity.py                      # every row of docs/parity.md that needs a server (about 25 minutes)
    python benchmarks/parity.py dense-float32 ...    # some
    python benchmarks/parity.py --list

Real vLLM on the CPU, one server after another, in the workspace of ``$RUNBOOK_HOME``, which must hold both CPU targets.
Prints one JSON object; on standard error a line a row. A row is judged against the checkpoint as generated, unless it
says otherwise. Nothing is a target here: what is right and what is planted is in docs/parity.md.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runbook import launch, parity, pins
from runbook.actions import Context
from runbook.actions.jobs import Jobs, Owner
from runbook.actions.model_files import GENERATED
from runbook.actions.parity import measured, ours
from runbook.actions.server import NAME, StartServer
from runbook.errors import ActionFailed, JobDied
from runbook.probes.live import LiveProbe
from runbook.workspace import Workspace, workspace

NEW, OLD = "vllm-0.32.0-cpu", "vllm-0.19.1-cpu"
HYBRID, DENSE = GENERATED
DYNAMIC = {"type": "dynamic", "factor": 4.0}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32768,
    "rope_theta": 1_000_000.0,
}
PROMPTS, TOKENS, DEADLINE_S = 22, 64, 900
# Where a template without thinking closes the block, and a faulty one that leaves it open.
CLOSED, OPEN = "'<think>\\n\\n</think>\\n\\n'", "'<think>\\n'"


# What an article has people run on a checkpoint: load it in float16, cast, save.
CONVERT = """
import json, sys, torch
from pathlib import Path
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
before, after = map(Path, sys.argv[1:])
model = AutoModelForCausalLM.from_pretrained(before, dtype=torch.float16)
for each in model.parameters():
    each.data = each.data.to(torch.bfloat16)
model.save_pretrained(after)
AutoTokenizer.from_pretrained(before).save_pretrained(after)
old, new = load_file(before / "model.safetensors"), load_file(after / "model.safetensors")
names = {name: next((one for one in (name, name.replace("model.language_model.", "model.")) if one in new), None) for name in old}
changed = {}
for name, other in names.items():
    if other:
        kind = str(old[name].dtype)
        count = changed.setdefault(kind, [0, 0])
        count[0] += int((old[name].float() != new[other].float()).sum())
        count[1] += old[name].numel()
config = json.loads((after / "config.json").read_text())
dropped = sorted({name.split(".")[1] for name, other in names.items() if not other})
print(json.dumps({"class": config["architectures"], "tensors": [len(old), len(new)], "dropped": dropped, "changed": changed}))
"""


@dataclass(frozen=True)
class Row:
    """One server. ``edits`` go into the copy that is served, ``reference_edits`` into the one it is judged by."""

    name: str
    stack: str
    model: str
    dtype: str = "auto"
    edits: tuple[tuple[str, Any], ...] = ()
    template: bool = False
    convert: bool = False
    flags: tuple[tuple[str, str], ...] = ()
    reference_edits: tuple[tuple[str, Any], ...] = ()


THETA = (("rope_theta", 10000.0), ("rope_parameters.rope_theta", 10000.0))
LONG = {"rope_parameters": YARN, "max_position_embeddings": 131072}
OVERRIDE = (("--hf-overrides", json.dumps(LONG)), ("--max-model-len", "131072"))
ROWS = (
    Row("hybrid", NEW, HYBRID),
    Row("hybrid-float32", NEW, HYBRID, "float32"),
    Row("hybrid-float16", NEW, HYBRID, "float16"),
    *(
        Row(f"dense-{dtype}{end}", stack, DENSE, dtype)
        for stack, end in ((NEW, ""), (OLD, "-0.19.1"))
        for dtype in ("float32", "bfloat16", "float16")
    ),
    Row("hybrid-theta", NEW, HYBRID, edits=(("text_config.rope_parameters.rope_theta", 10000.0),)),
    Row("hybrid-theta-1e6", NEW, HYBRID, edits=(("text_config.rope_parameters.rope_theta", 1e6),)),
    Row("hybrid-partial", NEW, HYBRID, edits=(("text_config.partial_rotary_factor", 1.0), ("text_config.rope_parameters.partial_rotary_factor", 1.0))),
    Row("hybrid-template", NEW, HYBRID, template=True),
    Row("hybrid-converted", NEW, HYBRID, convert=True),
    Row("dense-theta", NEW, DENSE, "float32", THETA),
    Row("dense-theta-bfloat16", NEW, DENSE, "bfloat16", THETA),
    Row("hybrid-dynamic-inside", NEW, HYBRID, edits=(("text_config.rope_scaling", DYNAMIC),)),
    Row("hybrid-dynamic-on-top", NEW, HYBRID, edits=(("rope_scaling", DYNAMIC),)),
    Row("hybrid-dynamic-and-theta", NEW, HYBRID, edits=(("text_config.rope_scaling", DYNAMIC), ("text_config.rope_theta", 1e7))),
    Row("dense-dynamic", NEW, DENSE, "float32", (("rope_scaling", DYNAMIC),)),
    Row("dense-dynamic-0.19.1", OLD, DENSE, "float32", (("rope_scaling", DYNAMIC),)),
    *(Row(f"dense-override{end}", stack, DENSE, "float32", flags=OVERRIDE, reference_edits=tuple(LONG.items())) for stack, end in ((NEW, ""), (OLD, "-0.19.1"))),
    Row("dense-override-against-unedited", NEW, DENSE, "float32", flags=OVERRIDE),
    Row("dense-too-long", NEW, DENSE, "float32", flags=(("--max-model-len", "65536"),)),
)  # fmt: skip


def copied(folder: Path, to: Path, edits: tuple[tuple[str, Any], ...], *, template: bool = False) -> Path:
    """A copy of a checkpoint with keys of its config.json set, or its template broken."""
    shutil.copytree(folder, to)
    config = json.loads((to / "config.json").read_text(encoding="utf-8"))
    for key, value in edits:
        *path, last = key.split(".")
        place = config
        for name in path:
            place = place[name]
        place[last] = value
    (to / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    if template:
        path_of = to / "chat_template.jinja"
        path_of.write_text(path_of.read_text(encoding="utf-8").replace(CLOSED, OPEN), encoding="utf-8")
    return to


def row(one: Row, work: Workspace, scratch: Path) -> dict[str, Any]:
    """What one server answered, or why it did not."""
    stack = pins.stack(one.stack)
    python = work.target_python(stack.name)
    made = LiveProbe(work, stack.name, python).inside(
        "make_model", {"kind": one.model, "out": str(scratch / one.model)}
    )
    plain = Path(str(made["out"]))
    serve = scratch / f"{one.name}-served"
    converted = {"converted": _converted(python, plain, serve)} if one.convert else {}
    if not one.convert:
        copied(plain, serve, one.edits, template=one.template)
    judge = (
        copied(plain, scratch / f"{one.name}-reference", one.reference_edits)
        if one.reference_edits
        else plain
    )
    dtype = () if one.dtype == "auto" else (launch.Flag("--dtype", one.dtype, ""),)
    flags = (*dtype, *(launch.Flag(name, value, "") for name, value in one.flags))
    ctx = Context(work, stack, python, True, str(serve), Owner.of(), DEADLINE_S)  # noqa: FBT003 - a field of the context
    began = time.monotonic()
    try:
        StartServer(ctx, flags).apply(lambda _: None)
        ready = time.monotonic()
        found = measured(ctx, ours(judge, one.dtype, PROMPTS, TOKENS))
    except (ActionFailed, JobDied) as why:
        return {"row": one.name, "started": False, "root": getattr(why, "root", str(why))}
    finally:
        Jobs(work.jobs).stop(NAME)
    answer = {
        "row": one.name,
        "started": True,
        "ready_s": round(ready - began, 1),
        "asked_s": round(time.monotonic() - ready, 1),
    }
    return answer | converted | parity.as_json(found)


def _converted(python: Path, folder: Path, to: Path) -> dict[str, Any]:
    """What CONVERT said of its own work."""
    argv = [str(python), "-c", CONVERT, str(folder), str(to)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def main() -> None:
    """Run the rows that were named, all by default."""
    parser = argparse.ArgumentParser()
    parser.add_argument("rows", nargs="*")
    parser.add_argument("--list", action="store_true")
    args = parser.parse_args()
    chosen = [one for one in ROWS if not args.rows or one.name in args.rows]
    if args.list:
        print("\n".join(one.name for one in chosen))
        return
    work = workspace()
    answers = []
    with tempfile.TemporaryDirectory() as scratch:
        for one in chosen:
            answer = row(one, work, Path(scratch))
            brief = {key: answer.get(key) for key in ("verdict", "noise_ratio", "equal", "mean_difference", "max_difference", "causes", "reason", "root")}  # fmt: skip
            print(one.name, json.dumps(brief), file=sys.stderr)
            answers.append(answer)
    print(json.dumps({"load_at_start": os.getloadavg()[0], "rows": answers}, indent=1))


if __name__ == "__main__":
    main()
