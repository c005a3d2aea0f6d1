"""ABI: what each extension needs of torch, CUDA and the C++ runtime against what they export, before anything is imported.

One reading for all: ``python -m runbook.binaries`` goes through the libraries as the dynamic loader would. A file that is
whole there loads; one that is not fails at import with the very name shown here first.
"""

import re
from collections.abc import Iterable

from runbook import tables
from runbook.checks.readings import BINARIES, REBUILD, links
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse.links import Link, Links, Provider, is_torch_or_cuda
from runbook.probe import Probe

UNREAD = "the libraries of the target could not be read"
NOTHING = "no file of this environment links torch or CUDA"
AUDIT = "runbook abi --target {python}"
CORE = ("torch", "nvidia", "vllm")
SHOWN = 3


def some(names: Iterable[str]) -> str:
    """The first few names, and how many more there are."""
    every = sorted(set(names))
    more = f" and {len(every) - SHOWN} more" if len(every) > SHOWN else ""
    return ", ".join(every[:SHOWN]) + more if every else "none"


def releases(symbols: Iterable[str], machine: str) -> str:
    """In words, which torch has these symbols; "" where the table knows none of them, or other wheels than this machine's."""
    found = tables.torch_with(symbols) if machine == "x86_64" else ()
    if len(found) > 1:
        return f"{found[0]} to {found[-1]}"
    return found[0] if found else ""


def broken(found: Links) -> list[Link]:
    """The files that a run loads and that lack something of torch's, CUDA's or the C++ runtime's, by themselves or below."""
    return [one for one in found.judged if not one.whole and not _is_lame(one, found.judged)]


def _is_lame(one: Link, files: Iterable[Link]) -> bool:
    """Whether all that it lacks are libraries of the system that torch and vLLM do without, such as FFmpeg's."""
    if (
        one.missing_count
        or one.missing_versions
        or one.package in CORE
        or any(map(is_torch_or_cuda, one.missing_libraries))
    ):
        return False
    below = {each.file: each for each in files}
    return all(
        name in below and below[name].package == one.package and _is_lame(below[name], ())
        for name in one.through
    )


@check(
    "ABI-001",
    layer=Layer.ABI,
    title="Every library that an extension needs is found where the loader looks",
    why="One that is not found ends the import: 'libcudart.so.12: cannot open shared object file'.",
    source=Source(
        "ld.so(8): where a needed library is looked for",
        "https://man7.org/linux/man-pages/man8/ld.so.8.html",
        "2026-11-30",
    ),
    needs_target=True,
)
def libraries(host: Probe) -> Answer:
    """DT_NEEDED of each file, all the way down, with what ``import torch`` loads before. libcuda is the driver's affair."""
    found = links(host)
    if found is None:
        return unknown(UNREAD)
    files = found.judged
    if not files:
        return skip(NOTHING)
    gone, lame = _gone(files)
    seen = [Evidence("files looked at", len(files), BINARIES)]
    seen += [Evidence(name, f"not found, needed by {some(gone[name])}", BINARIES) for name in sorted(gone)]
    seen += [
        Evidence(f"{package} wants", f"{some(lame[package])} of the system", BINARIES)
        for package in sorted(lame)
    ]
    known = {one.file for one in found.files}
    outside = sorted({name for one in files for name in one.through if name not in known})
    seen += [Evidence(name, "lacks a library of its own", BINARIES) for name in outside[:SHOWN]]
    damaged = [one for one in files if one.problem]
    seen += [Evidence(one.file, f"damaged: {one.problem}", BINARIES) for one in damaged[:SHOWN]]
    if driver := sorted({name for one in files for name in one.driver}):
        seen.append(Evidence("left to the driver", ", ".join(driver), BINARIES))
    if gone or damaged or outside:
        return fail(*seen, fix=_bring(sorted(gone)))
    if lame:
        return warn(*seen, reason=f"{some(lame)} cannot be imported here; torch and vLLM do not need it")
    return ok(*seen, Evidence("not found", 0, BINARIES))


def _gone(files: Iterable[Link]) -> tuple[dict[str, list[str]], dict[str, set[str]]]:
    """(missing library -> files, package -> libraries of the system it wants and can be done without)."""
    gone: dict[str, list[str]] = {}
    lame: dict[str, set[str]] = {}
    for one in files:
        for name in one.missing_libraries:
            if is_torch_or_cuda(name) or one.package in CORE:
                gone.setdefault(name, []).append(one.file)
            elif not _has_whole_sibling(one, files):
                lame.setdefault(one.package, set()).add(name.partition(".so")[0])
    return gone, lame


def _has_whole_sibling(one: Link, files: Iterable[Link]) -> bool:
    """Of files alike but for a number, such as torchcodec's for each FFmpeg, one is loaded: whichever finds its libraries."""
    pattern = re.sub(r"\d+", "#", one.file)
    return any(other.whole and re.sub(r"\d+", "#", other.file) == pattern for other in files)


def _bring(names: list[str]) -> Fix:
    packages = sorted({package for name in names if (package := tables.cuda_package(name))})
    if len(packages) == 0:
        return REBUILD
    return Fix(
        "Install what belongs together: "
        + ", ".join(packages)
        + f" {'holds' if len(packages) == 1 else 'hold'} what is missing; a library of another CUDA needs another build",
        ("runbook env build", f"uv pip install --python {{python}} --reinstall {' '.join(packages)}"),
        Risk.REBUILD,
    )


def _symbols(found: Links, files: list[Link], *, of: str) -> Answer:
    """The verdict on one group of files, by their missing symbols. ``of`` names the group."""
    bad = [one for one in files if one.missing_count]
    seen = [
        Evidence(f"files of {of}", len(files), BINARIES),
        Evidence("symbols they ask for", sum(one.asked for one in files), BINARIES),
        Evidence("torch", found.torch or "none", "read {site}/torch/version.py"),
    ]
    if not bad:
        short = {one.file for one in found.files if one.missing_libraries}
        waits = [one.file for one in files if one.file in short or short & set(one.through)]
        if waits:
            return unknown(
                f"libraries are missing, so not all symbols can be looked for: {some(waits)}", *seen
            )
        return ok(*seen, Evidence("not exported", 0, BINARIES))
    for one in bad[:SHOWN]:
        first = one.missing[0] if one.missing else None
        more = f" (the first of {one.missing_count})" if one.missing_count > 1 else ""
        name = (first.demangled + (f"@{first.version}" if first.version else "")) if first else "unnamed"
        seen.append(Evidence(one.file, f"lacks {name}{more}", BINARIES))
    if len(bad) > SHOWN:
        seen.append(Evidence("more such files", len(bad) - SHOWN, AUDIT))
    likely = releases((each.symbol for one in bad for each in one.missing), found.machine)
    if likely:
        seen.append(Evidence("torch releases that export them", likely, "runbook/tables/torch_symbols.json"))
    reason = ""
    if found.strings and any(one.strings not in ("", found.strings) for one in bad):
        reason = f"built with the {_other(found.strings)} C++ strings (_GLIBCXX_USE_CXX11_ABI), torch here has the {found.strings} ones"
    return fail(*seen, fix=_pair(found.torch, bad), reason=reason)


def _pair(torch: str, bad: list[Link]) -> Fix:
    if any(one.role == "torch" for one in bad):
        return Fix(
            "Install NVIDIA's packages as this torch pins them, and take other copies off LD_LIBRARY_PATH",
            ("uv pip check --python {python}", "runbook env build"),
            Risk.REBUILD,
        )
    pairs = tables.torch(torch) or {}
    names = [
        f"{name} {pairs[name]}" if name in pairs else name
        for name in dict.fromkeys(one.package for one in bad)
    ]
    return Fix(
        f"Install what goes with torch {torch or '?'}: {some(names)}",
        ("runbook env build", AUDIT),
        Risk.REBUILD,
    )


def _other(strings: str) -> str:
    return "old" if strings == "new" else "new"


@check(
    "ABI-002",
    layer=Layer.ABI,
    title="torch and CUDA export every symbol that vLLM's extensions need",
    why="Only a part of torch's C++ interface is stable: another torch ends in 'undefined symbol: _ZN3c10...'.",
    source=Source(
        "PyTorch: only a limited ABI is stable between releases",
        "https://docs.pytorch.org/docs/stable/notes/libtorch_stable_abi.html",
        "2026-11-30",
    ),
    needs_target=True,
)
def vllm_symbols(host: Probe) -> Answer:
    """Undefined symbols of vllm/*.so, looked up in the hash tables of what they are loaded with."""
    found = links(host)
    if found is None:
        return unknown(UNREAD)
    files = [one for one in found.judged if one.package == "vllm" and one.role == "extension"]
    if not files:
        return skip("vLLM brings no extension here (VLLM-001 says whether it is installed)")
    return _symbols(found, files, of="vLLM")


@check(
    "ABI-003",
    layer=Layer.ABI,
    title="torch and CUDA export every symbol that the other extensions need",
    why="torchvision of another torch ends vLLM's import, or its operators are silently not there.",
    source=Source(
        "PyTorch: which versions go together", "https://github.com/pytorch/vision#installation", "2026-11-30"
    ),
    needs_target=True,
)
def other_symbols(host: Probe) -> Answer:
    """torchvision, torchaudio and all others that link torch; flash-attn has a check of its own (FLASH-005)."""
    found = links(host)
    if found is None:
        return unknown(UNREAD)
    files = [
        one
        for one in found.judged
        if one.role == "extension"
        and one.package != "vllm"
        and not one.package.startswith("flash_attn")
        # A file that wants a library which is neither torch's nor CUDA's is not importable here whatever torch exports (ABI-001).
        and not any(not is_torch_or_cuda(name) for name in one.missing_libraries)
        and not (
            one.through
            and not one.missing_count
            and all(name.partition("/")[0] == one.package for name in one.through)
        )
    ]
    if not files:
        return skip("nothing but vLLM and flash-attn links torch here")
    return _symbols(found, files, of="other packages")


@check(
    "ABI-004",
    layer=Layer.ABI,
    title="The C++ runtime and glibc are as new as the files ask for",
    why="Older ones end the import: version `GLIBCXX_3.4.32' not found. conda brings an older libstdc++ at times.",
    source=Source(
        "libstdc++ manual: symbol versions by release",
        "https://gcc.gnu.org/onlinedocs/libstdc++/manual/abi.html",
        "2026-11-30",
    ),
    needs_target=True,
)
def runtime(host: Probe) -> Answer:
    """Versions asked for (.gnu.version_r) against those that the libraries really loaded define (.gnu.version_d)."""
    found = links(host)
    if found is None:
        return unknown(UNREAD)
    if not found.judged:
        return skip(NOTHING)
    asked: dict[str, tuple[tuple[int, ...], str, str]] = {}
    for one in found.judged:
        for kind, version in one.highest:
            numbers = tuple(int(part) for part in version.split(".") if part.isascii() and part.isdigit())
            asked[kind] = max(asked.get(kind, ((), "", "")), (numbers, version, one.file))
    seen = []
    for kind, (_, version, file) in sorted(asked.items()):
        provider = found.libc if kind == "GLIBC" else found.libstdcxx
        seen.append(Evidence(f"{kind} asked for", f"{version} by {file}", BINARIES))
        seen.append(
            Evidence(f"{kind} here", _newest(provider, kind), provider.path if provider else BINARIES)
        )
    old = [(one.file, *lack) for one in found.judged for lack in one.missing_versions]
    if old:
        for file, library, version, path in old[:SHOWN]:
            seen.append(Evidence(version, f"not in {path or library}, needed by {file}", BINARIES))
        return fail(*seen, fix=_newer({version.partition("_")[0] for _, _, version, _ in old}))
    if found.libc is None or found.libstdcxx is None or not asked:
        return unknown("the C or C++ runtime that this environment would load was not found", *seen)
    return ok(*seen)


def _newest(provider: Provider | None, kind: str) -> str:
    return dict(provider.newest).get(kind, "none") if provider else "not found"


def _newer(kinds: set[str]) -> Fix:
    if "GLIBC" in kinds:
        return Fix(
            "glibc comes with the distribution: use a newer one, or a container of one; wheels built for an older glibc also serve",
            risk=Risk.REBUILD,
        )
    if kinds & {"GLIBCXX", "CXXABI"}:
        return Fix(
            "Bring a newer libstdc++ into the environment that holds the old one, or take that environment's copy away",
            ("conda install -c conda-forge libstdcxx-ng",),
            Risk.REBUILD,
        )
    return REBUILD


@check(
    "ABI-005",
    layer=Layer.ABI,
    title="All that is linked agrees on one CUDA major version",
    why="torch of CUDA 13 under a vLLM of CUDA 12 asks for two runtimes: one is missing, or two run in one process.",
    source=Source(
        "CUDA C++ best practices: binary compatibility is kept within a major version",
        "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/index.html",
        "2026-11-30",
    ),
    needs_target=True,
)
def one_cuda(host: Probe) -> Answer:
    """The numbers in libcudart.so.N, libcublas.so.N and the like, over torch and all that links it."""
    found = links(host)
    if found is None:
        return unknown(UNREAD)
    by_major: dict[int, set[str]] = {}
    for one in found.judged:
        for major in one.majors:
            by_major.setdefault(major, set()).add("torch" if one.role == "torch" else one.package)
    if not by_major:
        return skip("nothing here links CUDA's runtime")
    seen = [
        Evidence(f"CUDA {major} linked by", some(packages), BINARIES)
        for major, packages in sorted(by_major.items())
    ]
    if len(by_major) > 1:
        return fail(
            *seen,
            Evidence("torch built for CUDA", found.torch_cuda or "none", "read {site}/torch/version.py"),
            fix=Fix(
                "Install builds of one CUDA: the package's wheel for torch's CUDA, or the torch that the package was built for",
                ("runbook env build", AUDIT),
                Risk.REBUILD,
            ),
        )
    return ok(*seen)


@check(
    "ABI-006",
    layer=Layer.ABI,
    title="torch's own libraries find every symbol they need",
    why="An older NCCL or nvJitLink beside torch, or before it on a search path, ends import torch itself.",
    source=Source(
        "PyTorch issue 138460: nvJitLink found elsewhere, undefined symbol",
        "https://github.com/pytorch/pytorch/issues/138460",
        "2026-11-30",
    ),
    needs_target=True,
)
def torch_symbols(host: Probe) -> Answer:
    """torch/lib, torch._C and the CUDA libraries that come with ``import torch``, as the loader finds them here."""
    found = links(host)
    if found is None:
        return unknown(UNREAD)
    files = [one for one in found.judged if one.role == "torch"]
    if not files:
        return skip("torch is not installed in the target")
    return _symbols(found, files, of="torch")


CHECKS = (libraries, vllm_symbols, other_symbols, runtime, one_cuda, torch_symbols)
