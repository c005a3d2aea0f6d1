"""A target made in a moment: a real interpreter with packages named as the real ones, so that it can be made to say anything."""

import subprocess
import sys
from pathlib import Path

from runbook.claims.target import Environment, environment
from runbook.probes.live import LiveProbe
from runbook.workspace import Workspace

METADATA = """Metadata-Version: 2.1
Name: vllm
Version: {version}
Requires-Python: <3.14,>=3.10
Requires-Dist: torch==2.10.0
Requires-Dist: transformers!=5.0.*,>=4.56.0
Requires-Dist: flash-attn; extra == "old"
Requires-Dist: this is none
"""
# argparse stands for vLLM's parser, which is a child of it.
VLLM = {
    "__init__.py": "",
    "platforms.py": "class _Platform:\n    device_type = ''\ncurrent_platform = _Platform()\n",
    "utils/__init__.py": "",
    "utils/argparse_utils.py": """
import argparse
import logging
class FlexibleArgumentParser(argparse.ArgumentParser):
    def parse_args(self, args):
        if "--model" in args:
            logging.getLogger("vllm").warning("--model will go")
        return super().parse_args(args)
""",
    "entrypoints/__init__.py": "",
    "entrypoints/cli/__init__.py": "",
    "entrypoints/cli/serve.py": """
def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--model", default="small")
    parser.add_argument("--max-num-seqs", type=int, default=128)
    return parser
class ServeSubcommand:
    def subparser_init(self, parsers):
        return make_arg_parser(parsers.add_parser("serve"))
""",
    "engine.py": """
class Queue:
    limit = 7
    def put(self, item, block=True, *, timeout=None):
        raise RuntimeError("no driver")
def size():
    return {"b": 1, "a": 2}
""",
}


def made(folder: Path, version: str = "0.19.1") -> Path:
    """A virtual environment with this vllm in it; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    site = folder / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    files = {f"vllm/{name}": text for name, text in VLLM.items()}
    info = f"vllm-{version}.dist-info"
    files[f"{info}/METADATA"] = METADATA.format(version=version)
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nTag: cp38-abi3-linux_x86_64\n"
    for name, text in files.items():
        path = site / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder / "bin" / "python"


def asked(python: Path, work: Path) -> Environment:
    """The environment of that interpreter, as the probes ask it."""
    return environment(LiveProbe(Workspace(work), "", python), "made")
