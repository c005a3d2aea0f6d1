"""TORCH: what goes with the torch that is installed: its pairs, its cuDNN and NCCL, and what would come before them."""

from runbook.checks import libraries
from runbook.checks.libraries import PATHS
from runbook.checks.readings import DIST_INFO, REBUILD, distributions, stack_of
from runbook.checks.torch import NO_TORCH, VERSION_FILE
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
from runbook.parse import loader, pinned, python_env
from runbook.pins import has_nvidia_gpu
from runbook.probe import Probe

PAIRS = ("torchvision", "torchaudio")
WHEEL_FILES = "{site}/nvidia/*/lib/*.so*"
# Names that hold what torch uses by name and by parts.
WATCHED = ("libcudnn", "libnccl", "libcublas", "libcusparse", "libnvJitLink", "libcudart")
# From here on `import torch` loads nvJitLink and its like from the wheels first (pytorch pull request 141063).
PRELOADS = (2, 6)
NCCL = "VLLM_NCCL_SO_PATH"


def metadata(host: Probe, package: str) -> tuple[str | None, str]:
    """(METADATA of an installed package or None, the question that told it)."""
    for path in host.glob(DIST_INFO):
        if package in python_env.distributions([path]):
            return host.read_text(f"{path}/METADATA"), f"read {path}/METADATA"
    return None, f"glob {DIST_INFO}"


def tag(version: str | None) -> str:
    """The local tag of a version, such as ``cu128``."""
    return (version or "").partition("+")[2]


@check(
    "TORCH-008",
    layer=Layer.TORCH,
    title="torchvision, torchaudio and triton are the ones this torch goes with, whatever the stack",
    why="They are compiled against one torch; of another release or flavour they fail at import or at the first operator.",
    source=Source(
        "PyTorch: which versions go together", "https://github.com/pytorch/vision#installation", "2026-11-30"
    ),
    needs_target=True,
)
def pairs(host: Probe) -> Answer:
    """What torch and its companions ask of each other in their METADATA, and the local tags of their version.py."""
    torch, _ = python_env.torch_version(host.read_text(VERSION_FILE))
    if torch is None:
        return skip(NO_TORCH)
    have = distributions(host)
    seen, verdicts, wrong = [Evidence("torch", torch, f"read {VERSION_FILE}")], [], []
    text, origin = metadata(host, "torch")
    asks = [("triton", pinned.asked(text, "triton"), have.get("triton"), origin)]
    for name in PAIRS:
        if name in have:
            text, origin = metadata(host, name)
            asks.append((name, pinned.asked(text, "torch"), torch, origin))
    for name, wanted, version, origin in asks:
        if wanted:
            met = pinned.meets(version, wanted) if version else False
            verdicts.append(met)
            wrong += [name] if met is False else []
            of = "triton" if name == "triton" else "torch"
            seen.append(Evidence(name, f"{have.get(name, 'none')}, asked: {of} {wanted}", origin))
    for name in PAIRS:
        flavour = (
            tag(python_env.torch_version(host.read_text(f"{{site}}/{name}/version.py"))[0])
            if name in have
            else ""
        )
        if flavour:
            seen.append(Evidence(f"{name} is built for", flavour, f"read {{site}}/{name}/version.py"))
            wrong += [f"{name} of {flavour}"] if tag(torch) and flavour != tag(torch) else []
    if wrong:
        return fail(*seen, fix=REBUILD, reason=f"another build than this torch goes with: {', '.join(wrong)}")
    if not verdicts or None in verdicts:
        return unknown("no METADATA here says what goes with this torch", *seen)
    return ok(*seen)


@check(
    "TORCH-009",
    layer=Layer.TORCH,
    title="cuDNN, NCCL and the other CUDA libraries are the versions this torch was built with, and whole",
    why="An older NCCL ends import torch in an undefined symbol; parts of two cuDNNs fail at the first convolution.",
    source=Source(
        "PyTorch: Requires-Dist of the published wheels", "https://github.com/pytorch/pytorch/blob/main/RELEASE.md", "2026-11-30"
    ),
    needs_target=True,
)  # fmt: skip
def built_with(host: Probe) -> Answer:
    """METADATA of torch against the nvidia packages, and the RECORD of cuDNN's and NCCL's against the files."""
    if python_env.torch_version(host.read_text(VERSION_FILE))[0] is None:
        return skip(NO_TORCH)
    text, asked = metadata(host, "torch")
    if text is None:
        return unknown("torch has no METADATA: built in place", Evidence("torch", None, asked))
    pins = {name: version for name, version in pinned.pinned(text).items() if name.startswith("nvidia-")}
    seen = [Evidence("NVIDIA packages asked for", len(pins), asked)]
    if not pins:
        return skip("this torch asks for no NVIDIA package", *seen)
    return _complete(host, pins, seen)


def _complete(host: Probe, pins: dict[str, str], seen: list[Evidence]) -> Answer:
    """The verdict about what torch asks for."""
    have = distributions(host)
    differ = {name: version for name, version in pins.items() if have.get(name) != version}
    deep = tuple(name for name in pins if name.startswith(("nvidia-cudnn", "nvidia-nccl")))
    seen += [
        Evidence(name, f"{have.get(name, 'none')}, asked {version}", f"glob {DIST_INFO}")
        for name, version in pins.items()
        if name in differ or name in deep
    ]
    older = [
        name for name in differ if name not in have or pinned.parts(have[name]) < pinned.parts(pins[name])
    ]
    if older:
        return fail(*seen, fix=REBUILD, reason=f"missing or older than this torch needs: {', '.join(older)}")
    gone = missing(host, deep)
    if gone is None:
        return unknown("no RECORD of cuDNN's or NCCL's wheel could be read", *seen)
    if gone:
        lost = (Evidence("files gone", len(gone), f"glob {WHEEL_FILES}"), Evidence("first", gone[0]))
        return fail(*seen, *lost, fix=REBUILD)
    if differ:
        return warn(*seen, fix=REBUILD, reason="newer than this torch was published with")
    return ok(*seen)


def missing(host: Probe, packages: tuple[str, ...]) -> list[str] | None:
    """Libraries in the RECORD of these packages that are not there; None when no RECORD can be read."""
    listed: list[str] = []
    for path in host.glob(DIST_INFO):
        if set(packages) & set(python_env.distributions([path])):
            listed += pinned.libraries(host.read_text(f"{path}/RECORD"))
    there = set(host.glob(WHEEL_FILES))
    return [path for path in listed if f"{{site}}/{path}" not in there] if listed else None


@check(
    "TORCH-010",
    layer=Layer.TORCH,
    title="No cuDNN, NCCL or other library from elsewhere comes before those of torch's wheels",
    why="LD_PRELOAD and LD_LIBRARY_PATH can slip in a foreign one: two cuDNNs mixed, or an NCCL without the symbols torch wants.",
    source=Source(
        "ld.so(8): the search order", "https://man7.org/linux/man-pages/man8/ld.so.8.html", "2026-11-30"
    ),
    needs_target=True,
)
def from_elsewhere(host: Probe) -> Answer:
    """LD_PRELOAD, vLLM's own variable for NCCL, and what torch would take from LD_LIBRARY_PATH (measured, see the page)."""
    torch, cuda = python_env.torch_version(host.read_text(VERSION_FILE))
    if torch is None:
        return skip(NO_TORCH)
    if cuda is None:
        return skip("this torch is a CPU build")
    have = distributions(host)
    own = next((version for name, version in have.items() if name.startswith("nvidia-cudnn-cu")), None)
    preload, named = host.env("LD_PRELOAD"), host.env(NCCL)
    foreign = [word for word in loader.words(preload) if loader.name(word).startswith(WATCHED)]
    taken = [
        path
        for files in libraries.on_path(host).values()
        for path in files
        if takes(loader.name(path), torch)
    ]
    seen = [
        Evidence("LD_PRELOAD", preload or "not set", "env LD_PRELOAD"),
        Evidence(NCCL, named or "not set", f"env {NCCL}"),
        Evidence(f"taken from {PATHS}", len(taken), f"env {PATHS}"),
        Evidence("cuDNN of the wheels", own, f"glob {DIST_INFO}"),
    ]
    if named and not host.glob(named):
        return fail(
            *seen,
            fix=Fix("Clear it", (f"unset {NCCL}",), Risk.RESTART),
            reason=f"{NCCL} names a file that is not there",
        )
    if taken:
        return _taken(taken, own, seen)
    if foreign or named:
        clear = Fix("Clear them, unless they are meant", (f"unset LD_PRELOAD {NCCL}",), Risk.RESTART)
        return warn(*seen, fix=clear, reason="a library is put before the wheels' by hand")
    return ok(*seen)


def takes(name: str, torch: str) -> bool:
    """True when torch's own libraries take a file of this name from LD_LIBRARY_PATH: cuDNN's parts, and once nvJitLink."""
    return name.startswith("libcudnn_") or (
        name.startswith("libnvJitLink") and pinned.parts(torch)[:2] < PRELOADS
    )


def _taken(taken: list[str], own: str | None, seen: list[Evidence]) -> Answer:
    """Parts of another release are a fail; where no name bears a version nobody can tell."""
    versions = {
        version
        for path in taken
        if loader.name(path).startswith("libcudnn_") and (version := loader.version(path))
    }
    seen += [
        Evidence("first", taken[0]),
        Evidence("their versions", " ".join(sorted(versions)) or "not in the names"),
    ]
    away = Fix("Start the server without it", ("env -u LD_LIBRARY_PATH runbook run",), Risk.RESTART)
    if (
        own
        and versions
        and all(pinned.parts(one) == pinned.parts(own)[: len(pinned.parts(one))] for one in versions)
    ):
        return warn(
            *seen, fix=away, reason="cuDNN takes its parts from there; today they are of the same release"
        )
    if own and versions:
        return fail(*seen, fix=away, reason="cuDNN would be a mix of two releases")
    return warn(
        *seen, fix=away, reason="torch's libraries take these from there, of whatever release they are"
    )


@check(
    "TORCH-011",
    layer=Layer.TORCH,
    title="The CUDA libraries that torch really loads are those of its wheels",
    why="What is mapped after a computation is the only proof of what every variable, cache and path came to.",
    source=Source(
        "proc(5): /proc/pid/maps", "https://man7.org/linux/man-pages/man5/proc_pid_maps.5.html", "2026-11-30"
    ),
    cost=Cost.INSIDE,
    needs_target=True,
    requires=("TORCH-004",),
)
def loaded(host: Probe) -> Answer:
    """The maps of a child that computed a product and a convolution, and what cuDNN and NCCL say of themselves."""
    device = stack_of(host).device
    if device == "cuda" and not has_nvidia_gpu(host):
        device = "cpu"
    origin = f"inside torch_matmul device={device}"
    facts = host.inside("torch_matmul", {"device": device})
    found = facts.get("libraries")
    if not isinstance(found, dict):
        return unknown(
            "the child computed nothing, so nothing was loaded (TORCH-006)",
            Evidence("libraries", None, origin),
        )
    wheels = {loader.name(path) for path in host.glob(WHEEL_FILES)}
    paths = {name: str(path) for name, path in found.items() if not str(name).startswith("libcuda.so")}
    if not paths:
        return skip("no CUDA library was loaded: a CPU build", Evidence("libraries", 0, origin))
    own, nccl = distributions(host), facts.get("nccl")
    cudnn = pinned.cudnn(facts.get("cudnn"))
    foreign = {
        name: path for name, path in paths.items() if not path.startswith("{site}/") and name in wheels
    }
    seen = [
        Evidence(
            "loaded from the wheels", sum(path.startswith("{site}/") for path in paths.values()), origin
        ),
        Evidence("from elsewhere", len(foreign), origin),
        Evidence("cuDNN says", cudnn or str(facts.get("cudnn")), origin),
        Evidence("NCCL says", str(nccl), origin),
    ]
    if foreign:
        name = next(iter(foreign))
        away = Fix(
            "Take away what puts them first (TORCH-010)", ("unset LD_LIBRARY_PATH LD_PRELOAD",), Risk.RESTART
        )
        return fail(*seen, Evidence(name, foreign[name], origin), fix=away)
    for package, said in (("nvidia-cudnn-cu", cudnn), ("nvidia-nccl-cu", nccl)):
        wheel = next((version for each, version in own.items() if each.startswith(package)), None)
        if (
            wheel
            and isinstance(said, str)
            and pinned.parts(said)
            and pinned.parts(wheel)[:3] != pinned.parts(said)[:3]
        ):
            return fail(*seen, Evidence(f"{package}* installed", wheel, f"glob {DIST_INFO}"), fix=REBUILD)
    if device == "cuda" and cudnn is None:
        return warn(*seen, fix=REBUILD, reason="cuDNN would not say what it is")
    return ok(*seen)


CHECKS = (pairs, built_with, from_elsewhere, loaded)
