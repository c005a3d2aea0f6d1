"""A machine and one environment on it at one time, as a value: what is compared when it worked yesterday.

It is read through a probe, so a live machine and a recording answer alike. What a recording does not hold is a gap
with its reason and never an absence; what was looked for and is not there is None. Values are redacted as in a
recording, and a variable whose name speaks of a secret is kept as set or not set.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from runbook import collect
from runbook.checks import arch, libraries, readings, toolkits
from runbook.errors import BadParameter, NotRecorded
from runbook.parse import loader, nvidia, proc, python_env, system, vllm_flags
from runbook.probe import Probe

SCHEMA: Literal["snapshot/1"] = "snapshot/1"
GAP = "not recorded"
NO_TARGET = "no environment was there"
PTH = "{site}/*.pth"
CONDA = "{prefix}/conda-meta/*.json"
BOOT = "{work}/jobs/server.boot.json"
# Brackets keep the shell that asks out of the answer; keys are cut out before anything can write them down.
RUNNING_ARGV = ["sh", "-c", "pgrep -af '[v]llm serve|[v]llm[.]entrypoints' | sed -E 's/(--(api-key|hf-token)[= ])[^ ]+/\\1<token>/g'"]  # fmt: skip
LINK_ARGV = ["readlink", "-f", toolkits.DEFAULT_HOME]
EVERY_START = ("--port", "--api-key")  # another one each time, or a secret
T = TypeVar("T")


@dataclass(frozen=True)
class Python:
    """The interpreter. ``fault`` says why it does not start; it is "" when it does."""

    version: str
    executable: str
    kind: str
    fault: str = ""


@dataclass(frozen=True)
class Package:
    """What an import finds. ``content`` is a hash of the files its RECORD lists, ``touched`` how many changed since.

    ``changed`` names a few of those, ``origin`` is where it came from when it was from no index, ``needs`` what it asks for.
    """

    version: str
    content: str | None = None
    installer: str | None = None
    origin: str | None = None
    needs: tuple[str, ...] = ()
    touched: int = 0
    changed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gpu:
    """One card as nvidia-smi prints it."""

    name: str
    capability: str | None
    memory_mib: int | None


@dataclass(frozen=True)
class Code:
    """Machine code in one of the files that every start loads."""

    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    problem: str = ""


@dataclass(frozen=True)
class Server:
    """Flags of a vLLM server: one that runs, else the last that the runbook started."""

    state: Literal["running", "last started"]
    flags: dict[str, str]


@dataclass(frozen=True)
class Snapshot:
    """Everything that is compared. ``gaps`` maps a section, or ``section.name``, to why it could not be read."""

    taken: str
    machine: str
    stack: str
    python: Python | None = None
    torch: str | None = None
    vllm: str | None = None
    packages: dict[str, Package] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)
    conda: dict[str, str] = field(default_factory=dict)
    damage: dict[str, str] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    code: dict[str, Code] = field(default_factory=dict)
    gpus: tuple[Gpu, ...] = ()
    system: dict[str, str | None] = field(default_factory=dict)
    toolkits: dict[str, str | None] = field(default_factory=dict)
    env: dict[str, str | None] = field(default_factory=dict)
    server: Server | None = None
    gaps: dict[str, str] = field(default_factory=dict)
    schema: Literal["snapshot/1"] = SCHEMA


_ADAPTER = TypeAdapter(Snapshot)


def schema() -> dict[str, Any]:
    """The JSON schema of a snapshot; ``schemas/snapshot.schema.json`` is this."""
    return _ADAPTER.json_schema()


def as_json(one: Snapshot) -> str:
    """A snapshot as the text of a file."""
    return json.dumps(_ADAPTER.dump_python(one, mode="json"), indent=1, sort_keys=True) + "\n"


def from_json(text: str, place: str) -> Snapshot:
    """The snapshot in a file; ``place`` is what it is called in an error.

    Raises:
        BadParameter: the text is no snapshot, or one of a form that this version does not know.
    """
    try:
        return _ADAPTER.validate_json(text)
    except ValidationError as why:
        first = why.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise BadParameter(
            f"{place} is no snapshot: {where}: {first['msg']}",
            f"a file of the form {SCHEMA}",
            "runbook env snapshot --out FILE writes one",
        ) from why


def take(host: Probe, taken: str, redact: Callable[[str], str] | None = None) -> Snapshot:
    """Read everything. ``taken`` is the time to write down; ``redact`` is given in tests.

    The probe is best one that asks each question once (``connect.cached``).
    """
    return _Taking(host, redact or collect.redactor()).whole(taken)


class _Taking:
    """One snapshot in the making: the gaps are gathered on the way."""

    def __init__(self, host: Probe, redact: Callable[[str], str]) -> None:
        self.host = host
        self.redact = redact
        self.gaps: dict[str, str] = {}

    def whole(self, taken: str) -> Snapshot:
        told = self._about_target()
        return Snapshot(
            taken=taken,
            machine=self.host.machine,
            stack=self.host.stack,
            **told,
            gpus=self._ask("gpus", self._gpus, ()),
            system=self._each("system", SYSTEM),
            toolkits=self._each("toolkits", TOOLKITS),
            env=self._env(),
            server=self._ask("server", self._server, None),
            gaps=self.gaps,
        )

    def _ask(self, place: str, read: Callable[[], T], without: T) -> T:
        try:
            return read()
        except NotRecorded:
            self.gaps[place] = GAP
            return without

    def _each(
        self, section: str, facts: Mapping[str, Callable[[Probe], str | None]]
    ) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for name, read in facts.items():
            try:
                value = read(self.host)
            except NotRecorded:
                self.gaps[f"{section}.{name}"] = GAP
                continue
            found[name] = value and self.redact(value)
        return found

    # The environment.

    def _about_target(self) -> dict[str, Any]:
        if not self.host.has_target:
            self.gaps["target"] = NO_TARGET
            return {}
        python = self._ask("python", self._python, None)
        told: dict[str, Any] = {"python": python}
        if python is not None and python.fault:
            # Where packages lie is what the interpreter would say.
            self.gaps["target"] = "its interpreter does not start"
            return told
        return told | {
            "torch": self._ask(
                "torch", lambda: python_env.torch_version(self._version_file("torch"))[0], None
            ),
            "vllm": self._ask(
                "vllm", lambda: system.assigned(self._version_file("vllm"), "__version__"), None
            ),
            **self._ask("packages", self._packages, dict[str, Any]()),
            **self._ask("conda", self._conda, dict[str, Any]()),
            **self._ask("damage", self._damage, dict[str, Any]()),
            **self._ask("imports", self._imports, dict[str, Any]()),
            **self._ask("code", self._code, dict[str, Any]()),
        }

    def _interpreter(self) -> dict[str, Any]:
        return self.host.inside("interpreter", timeout_s=20.0)

    def _python(self) -> Python:
        said = self._interpreter()
        kind = "virtual environment" if said.get("venv") else "interpreter's own packages"
        if "error" in said:
            last = str(said.get("stderr", "")).strip().splitlines()[-1:]
            return Python("", "", "", self.redact(": ".join([str(said["error"]), *last])))
        return Python(str(said.get("version")), self.redact(str(said.get("executable"))), kind)

    def _version_file(self, package: str) -> str | None:
        text = self._interpreter().get(f"{package}_version")
        return text if isinstance(text, str) else None

    def _packages(self) -> dict[str, Any]:
        """What an import finds, and what lies behind it under the same name."""
        found: dict[str, Package] = {}
        hidden: dict[str, str] = {}
        contents = self._contents()
        for folder, names in self._interpreter().get("packages", ()):
            for entry in names:
                name, version = system.package(entry) or ("", "")
                if name and name in found:
                    hidden[name] = f"{version} in {self.redact(folder)}"
                elif name:
                    found[name] = self._package(version, contents.get(entry))
        return {"packages": found, "hidden": hidden}

    def _contents(self) -> dict[str, dict[str, Any]]:
        try:
            rows = self.host.inside("contents", timeout_s=60.0).get("packages")
        except NotRecorded:
            self.gaps["contents"] = GAP
            return {}
        if rows is None:
            self.gaps["contents"] = "the RECORD files were not read"
        # The first of a name is what an import finds.
        return {row["entry"]: row for row in reversed(rows or [])}

    def _package(self, version: str, row: Mapping[str, Any] | None) -> Package:
        if row is None:
            return Package(version)
        source = row["origin"] and self.redact(row["origin"])
        return Package(version, row["content"], row["installer"], source, tuple(row["needs"]), row["touched"], tuple(row["first"]))  # fmt: skip

    def _conda(self) -> dict[str, Any]:
        found = system.conda_packages(self.host.glob(CONDA))
        return {"conda": {name: f"{version} {build}" for name, version, build in found}}

    def _damage(self) -> dict[str, Any]:
        """Distribution -> files gone, and of another size than recorded (PY-016)."""
        facts = self.host.inside("owners")
        if "error" in facts:
            self.gaps["damage"] = str(facts["error"])
            return {}
        found: dict[str, str] = {}
        for word, rows in (("gone", facts["missing"]), ("of another size", facts["resized"])):
            for row in rows:
                said = f"{row['files']} {word}, such as {row['first'][0]}"
                found[row["distribution"]] = "; ".join(filter(None, (found.get(row["distribution"]), said)))
        return {"damage": found}

    def _imports(self) -> dict[str, Any]:
        """What changes where imports come from: path files (PY-011), and modules that no package brought (PY-016)."""
        found = {}
        for path in self.host.glob(PTH):
            folders, early = python_env.path_file(self.host.read_text(path))
            does = [*(f"adds {self.redact(folder)}" for folder in folders), *(["runs before all packages"] if early else [])]  # fmt: skip
            found[loader.name(path)] = "; ".join(does) or "runs code"
        facts = self.host.inside("owners")
        stray = {str(name): "recorded by no package" for name in facts.get("unowned", ())}
        return {"imports": found | stray}

    def _code(self) -> dict[str, Any]:
        files = readings.binaries(self.host)
        if files is None:
            self.gaps["code"] = readings.unread(self.host)[0]
        found = {one.file: Code(one.sass, one.ptx, one.problem) for one in arch.core(files or ())}
        return {"code": found}

    # The machine.

    def _gpus(self) -> tuple[Gpu, ...]:
        return tuple(Gpu(one.name, one.compute_cap, one.total_mib) for one in readings.gpus(self.host))

    def _env(self) -> dict[str, str | None]:
        """Variables that matter; where their names are not known a few are asked all the same."""
        names = set(collect.ENV_ALWAYS)
        ran = self._ask("env", lambda: self.host.run(collect.ENV_ARGV), None)
        if ran is not None and ran.ok:
            names |= set(ran.out.split())
        else:
            self.gaps["env"] = f"{GAP}: only {', '.join(sorted(names))} were asked"
        found: dict[str, str | None] = {}
        for name in sorted(names):
            try:
                value = self.host.env(name)
            except NotRecorded:
                self.gaps[f"env.{name}"] = GAP
                continue
            found[name] = None if value is None else self.redact(collect.without_credentials(value))
        return found

    def _server(self) -> Server | None:
        for line in self._running():
            if asked := vllm_flags.command(line.split()[1:]):
                return Server("running", self._flags(asked.words))
        try:
            boot = json.loads(self.host.read_text(BOOT) or "{}")
            command = vllm_flags.command(shlex.split(boot.get("command", "")))
        except (ValueError, AttributeError, TypeError):
            return None
        if command is None or boot.get("stack") != self.host.stack:
            return None
        return Server("last started", self._flags(command.words))

    def _running(self) -> list[str]:
        """Lines ``PID COMMAND``; none where a recording does not say: then the last start still tells the flags."""
        try:
            return self.host.run(RUNNING_ARGV).out.splitlines()
        except NotRecorded:
            return []

    def _flags(self, words: tuple[str, ...]) -> dict[str, str]:
        """Flag -> value, "" for one without; the first word of ``vllm serve`` is the model."""
        found: dict[str, str] = {}
        name = "--model"
        for word in words:
            if word.startswith("--"):
                name, _, value = word.partition("=")
                found[name] = self.redact(value)
            else:
                found[name] = " ".join(filter(None, (found.get(name), self.redact(word))))
        return {name: value for name, value in found.items() if name not in EVERY_START}


def _os(host: Probe) -> str | None:
    return system.os_name(host.read_text("/etc/os-release"))


def _kernel(host: Probe) -> str | None:
    return host.run(["uname", "-srm"]).out.strip() or None


def _glibc(host: Probe) -> str | None:
    return proc.glibc(host.run(["getconf", "GNU_LIBC_VERSION"]).out)


def _cpu(host: Probe) -> str | None:
    return proc.cpu_name(host.read_text("/proc/cpuinfo"))


def _cores(host: Probe) -> str | None:
    return host.run(["nproc"]).out.strip() or None


def _memory(host: Probe) -> str | None:
    mib = proc.meminfo_mib(host.read_text("/proc/meminfo"), "MemTotal")
    return None if mib is None else f"{mib / 1024:.0f} GiB"


def _module(host: Probe) -> str | None:
    found = nvidia.is_open_module(host.read_text(libraries.MODULE))
    return None if found is None else "open" if found else "proprietary"


def _libcuda(host: Probe) -> str | None:
    for first in libraries.libcuda(host):
        return f"{first.version or 'no version'}, {first.kind}, {first.path} ({first.how})"
    return None


def _nvcc(host: Probe) -> str | None:
    return system.nvcc_build(host.run(["nvcc", "--version"]).out)


def _side_by_side(host: Probe) -> str | None:
    return " ".join(path.removeprefix("/usr/local/") for path in host.glob(toolkits.TOOLKITS)) or None


def _link(host: Probe) -> str | None:
    if not host.glob(toolkits.DEFAULT_HOME):
        return None
    return host.run(LINK_ARGV).out.strip() or "leads nowhere"


def _compiler(host: Probe) -> str | None:
    return system.tool("gcc", host.run(["gcc", "--version"]).out)


SYSTEM: dict[str, Callable[[Probe], str | None]] = {
    "NVIDIA driver": libraries.driver_version,
    "NVIDIA kernel module": _module,
    "libcuda": _libcuda,
    "kernel": _kernel,
    "glibc": _glibc,
    "system": _os,
    "processor": _cpu,
    "cores": _cores,
    "memory": _memory,
}
TOOLKITS: dict[str, Callable[[Probe], str | None]] = {
    "nvcc on PATH": _nvcc,
    "toolkits": _side_by_side,
    toolkits.DEFAULT_HOME: _link,
    "gcc": _compiler,
}
# What stands for a value that is not kept; two of them may hide a difference.
KEPT_BACK = re.compile(r"<(?:set, not shown|credentials|token|ip|mac|uuid|serial|host|user|id)>|\{(?:python|site|prefix|home|work|model|own|disk|port)\}")  # fmt: skip
