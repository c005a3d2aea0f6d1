"""VLLM: its files are the ones that were installed, and the ones that will be imported."""

from runbook.checks.readings import BINARIES, DIST_INFO, NO_VLLM, REBUILD, binaries, distributions, stack_of
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import record
from runbook.probe import Probe

INSTALLED = "{site}/vllm/__init__.py"
FEW = 3


@check(
    "VLLM-008",
    layer=Layer.VLLM,
    title="Every library that the vLLM wheel brought is there and whole",
    why="An install that was cut leaves Python files that import and kernels that do not: 'No module named vllm._C'.",
    source=Source(
        "PyPA: the RECORD file of an installed project",
        "https://packaging.python.org/en/latest/specifications/recording-installed-packages/",
        "2026-11-30",
    ),
    needs_target=True,
)
def whole(host: Probe) -> Answer:
    """Libraries of the wheel's RECORD against the folders they belong to, and their sizes where they were read."""
    stack = stack_of(host)
    version = distributions(host).get(stack.distribution)
    if version is None:
        return skip(NO_VLLM)
    path = f"{{site}}/{stack.distribution.replace('-', '_')}-{version}.dist-info/RECORD"
    argv = ["grep", "-F", ".so,", path]
    ran = host.run(argv)
    sizes = record.sizes(ran.out)
    asked = "run " + " ".join(argv)
    if ran.missing or not sizes:
        return unknown("RECORD names no library: an editable install, or one without kernels", Evidence("libraries recorded", 0, asked))  # fmt: skip
    folders = sorted({name.rpartition("/")[0] for name in sizes})
    there = {
        one.removeprefix("{site}/") for folder in folders for one in host.glob(f"{{site}}/{folder}/*.so")
    }
    gone = sorted(set(sizes) - there)
    read = {one.file: one.size for one in binaries(host) or ()}
    cut = sorted(name for name, size in sizes.items() if read.get(name, size) != size)
    seen = [
        Evidence("libraries recorded", len(sizes), asked),
        Evidence("missing", ", ".join(gone[:FEW]) or "none", f"glob {{site}}/{folders[0]}/*.so"),
        Evidence("of another size", ", ".join(cut[:FEW]) or "none", BINARIES),
    ]
    if gone or cut:
        why = f"{len(gone)} missing, {len(cut)} of another size than recorded"
        return fail(*seen, fix=REBUILD, reason=why)
    return ok(*seen)


@check(
    "VLLM-009",
    layer=Layer.VLLM,
    title="The vllm that is imported is the installed one, not a folder beside it",
    why="python -m searches the current folder first: in a checkout of vLLM it imports sources without kernels.",
    source=Source(
        "Python: sys.path, the initialisation of the module search path",
        "https://docs.python.org/3/library/sys_path_init.html",
        "2026-11-30",
    ),
    needs_target=True,
)
def not_shadowed(host: Probe) -> Answer:
    """The current folder, the workspace the runbook's server starts in, and PYTHONPATH."""
    if not host.glob(INSTALLED):
        return skip("vllm is not a folder of the target's packages", Evidence(INSTALLED, "not there", f"glob {INSTALLED}"))  # fmt: skip
    pythonpath = host.env("PYTHONPATH")
    places = {"": "the current folder", "{work}/": "the workspace"}
    places |= {f"{one.rstrip('/')}/": "PYTHONPATH" for one in (pythonpath or "").split(":") if one}
    hits = []
    for folder, name in places.items():
        for module in ("vllm/__init__.py", "vllm.py"):
            hits += [(name, path, f"glob {folder}{module}") for path in host.glob(f"{folder}{module}")]
    seen = [
        Evidence("installed", INSTALLED, f"glob {INSTALLED}"),
        Evidence("PYTHONPATH", pythonpath or "not set", "env PYTHONPATH"),
        *(Evidence(f"in {name}", path, origin) for name, path, origin in hits),
    ]
    if not hits:
        return ok(*seen, Evidence("other vllm", "none", f"glob {DIST_INFO}, the folders above"))
    fix = Fix("Start the server from another folder, without PYTHONPATH", ("cd / && env -u PYTHONPATH {python} -m vllm.entrypoints.openai.api_server",), Risk.NONE)  # fmt: skip
    if any(name == "the workspace" for name, _, _ in hits):
        return fail(*seen, fix=fix, reason="the runbook's own server starts in that folder")
    return warn(*seen, fix=fix, reason=f"started as you are now, Python would import {hits[0][1]}")


CHECKS = (whole, not_shadowed)
