"""Ask a live machine and write every answer down, redacted, in the form ``replay`` reads.

Redaction works on whole tokens, never on substrings (a tool that replaced the user name as a substring ate the word
"root" in every container's report). What is replaced: this machine's folders (by placeholders), host and user name,
GPU and disk UUIDs, serial numbers, MAC and non-loopback IP addresses, credentials in URLs, and token-shaped words.
"""

import dataclasses
import datetime
import hashlib
import json
import os
import re
import socket
from pathlib import Path
from typing import Any

from runbook.parse import kernel_log, nvidia, proc
from runbook.probe import TARGET_PLACEHOLDERS, Ran, Reply
from runbook.probes import questions
from runbook.probes.live import LiveProbe, is_secret_name
from runbook.workspace import workspace

# The one that ends the names of the UEFI specification's own variables (SecureBoot-...) identifies nothing.
_UUID = re.compile(
    r"\b(GPU-|MIG-)?(?!8be4df61-93ca-11d2-aa0d-00e098032b8c)[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"
)
_IPV4 = re.compile(
    r"(?<![\d.])(?!127\.|0\.0\.0\.0)(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3}(?!\.?\d)"
)
# At least two groups and a double colon, or all eight groups; a clock (07:10:14) is neither.
_IPV6 = re.compile(
    r"(?i)(?<![\w:.])(?=[0-9a-f:]*[0-9])(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,6}(?::[0-9a-f]{1,4}){1,6}|(?:[0-9a-f]{1,4}:){2,7}:)(?![\w:])"
)
# Who built a kernel, and where: "Linux version 6.1.0 (me@here) (gcc ...".
_BUILDER = re.compile(r"(?<=\()[\w.+-]+@[\w.-]+(?=\))")
_MAC = re.compile(r"\b(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}\b")
_URL_USER = re.compile(r"(\w+://)[^\s/@:]+:[^\s/@]+@")
_TOKEN = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{16,}|AKIA[0-9A-Z]{12,}|Bearer\s+\S+)"
)
_SERIAL = re.compile(r"(?im)(serial(?:[ _]number)?\s*[:=,]\s*)(?!\[?n/a)\S+")
# A name that ends in TOKEN and the like, a sign, and a value of some length: max_num_batched_tokens="2048" and
# eos_token="<|im_end|>" are none.
_LABELLED = re.compile(
    r"(?i)\b((?:[a-z0-9]+[_-])*(?:token|secret|password|passwd|api_?key))([\"']?\s*[=:]\s*[\"']?)(?!<)[^\s,\"'{}]{6,}"
)
# Four-part numbers that are versions, not addresses, are common in this field (cuDNN 9.19.0.56): they follow a name or '=='.
_VERSION_BEFORE = re.compile(r"(?i)(?:==|[-_]|version\W{0,3}|cudnn\W{0,3}|nccl\W{0,3}|v)$")
# What in nvidia-smi's XML names one card, one chassis or one person. N/A stays, and part numbers, which all cards share.
_XML_OWN = re.compile(
    r"(?s)(<(serial|uuid|pdi|chassis_serial_number|gpu_fabric_guid|clusterUuid|gpu_uuid)>)(?!\s*(?:N/A)?\s*</)[^<]*(</\2>)"
)
_XML_PROGRAM = re.compile(r"(?s)(<process_name>)(.*?)(</process_name>)")
_KNOWN_PROGRAM = re.compile(
    r"(?:.*/)?(python[0-9.]*|VLLM::\w+|ray::\w+|Xorg|gnome-shell|nvidia-[\w-]+)(?:\s.*)?", re.DOTALL
)


# Names that identify nobody and stand in texts for something else: "vm" in /proc/sys/vm, "root" everywhere.
COMMON_NAMES = frozenset({"vm", "host", "node", "gpu", "server", "worker", "master", "localhost", "box", "root", "user", "ubuntu", "debian", "admin"})  # fmt: skip


class Redactor:
    """Replaces what identifies a machine or a person. ``places`` maps placeholders to this machine's folders."""

    def __init__(self, places: dict[str, str], host: str = "", user: str = "") -> None:
        longest_first = sorted(places.items(), key=lambda item: -len(item[1]))
        self.places = [(name, place) for name, place in longest_first if len(place) > 1]
        words = [
            (host if host not in COMMON_NAMES else "", "<host>"),
            (user if user not in COMMON_NAMES else "", "<user>"),
        ]
        self.words = [
            (re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w-])"), label)
            for word, label in words
            if len(word) > 1
        ]

    def __call__(self, text: str) -> str:
        """``text`` with every such token replaced."""
        if "<nvidia_smi_log>" in text:
            return self._xml(text)
        return self._plain(text)

    def _xml(self, text: str) -> str:
        """An answer of ``nvidia-smi -q -x`` stays XML: labels in square brackets, and of a program's line at most its name."""
        text = _XML_OWN.sub(r"\1[redacted]\3", text)
        text = _XML_PROGRAM.sub(lambda one: f"{one[1]}{_program(one[2])}{one[3]}", text)
        pieces = re.split(r"(<[^<>]*>)", text)
        # Elements' own names and the bus address in their attribute say nothing of anybody.
        return "".join(
            piece if at % 2 else re.sub(r"<([a-z]+)>", r"[\1]", self._plain(piece))
            for at, piece in enumerate(pieces)
        )

    def _plain(self, text: str) -> str:
        for name, place in self.places:
            text = re.sub(rf"{re.escape(place)}(?![\w-])", name, text)
        text = _UUID.sub(lambda match: f"{match.group(1) or ''}<uuid>", text)
        text = _URL_USER.sub(r"\1<credentials>@", text)
        text = _TOKEN.sub("<token>", text)
        text = _LABELLED.sub(r"\1\2<token>", text)
        text = _SERIAL.sub(r"\1<serial>", text)
        text = _MAC.sub("<mac>", text)
        text = _BUILDER.sub("<builder>", text)
        text = _IPV6.sub("<ip>", text)
        text = _IPV4.sub(
            lambda match: match.group() if _VERSION_BEFORE.search(text[: match.start()][-24:]) else "<ip>",
            text,
        )
        for word, label in self.words:
            text = word.sub(label, text)
        return text


def _program(line: str) -> str:
    known = _KNOWN_PROGRAM.fullmatch(line.strip())
    return known[1] if known else "[redacted]" if line.strip() else ""


class RecordProbe:
    """A live probe that keeps what it hears in ``folder``; a later answer to the same question replaces the earlier.

    To a question that names ``settled`` the earlier one stays: after a walk the server's state is that of the last stack.
    """

    def __init__(self, live: LiveProbe, folder: Path) -> None:
        self.live = live
        self.settled = ""
        self.machine = live.machine
        self.stack = live.stack
        self.folder = folder
        (folder / "answers").mkdir(parents=True, exist_ok=True)
        # {disk} is {work} or a folder above it; as a word of its own it would turn every /tmp into a placeholder.
        places = {name: place for name, place in live.places.items() if name != "{disk}"}
        self.redact = Redactor(
            places, socket.gethostname(), os.environ.get("USER", os.environ.get("LOGNAME", ""))
        )

    @property
    def has_target(self) -> bool:
        """As the live probe."""
        return self.live.has_target

    def _keep(self, ask: str, text: str, suffix: str = "txt", **extra: Any) -> None:  # noqa: ANN401 - bool, int or str as JSON takes
        if not (self.settled and self.settled in ask and kept(self.folder, ask, self.stack)):
            keep(self.folder, ask, self.stack, self.redact(text), suffix, **extra)

    def run(self, argv: list[str], timeout_s: float = 20.0) -> Ran:
        """Run and write down."""
        ran = self.live.run(argv, timeout_s)
        if argv in (kernel_log.DMESG, kernel_log.JOURNAL):
            ran = dataclasses.replace(ran, out=kernel_log.about_nvidia(ran.out))
        self._keep(
            questions.run([self.redact(word) for word in argv]),
            ran.out,
            rc=ran.rc,
            err=self.redact(ran.err),
            missing=ran.missing,
            timed_out=ran.timed_out,
        )
        return ran

    def read_text(self, path: str) -> str | None:
        """Read and write down."""
        text = self.live.read_text(path)
        if text is not None and path.endswith("/METADATA"):
            # The headers are what is asked about; the description below the first empty line is somebody's prose.
            text = text.partition("\n\n")[0] + "\n"
        if text is not None and path.endswith(".pth"):
            text = own_paths(text)
        if text is not None and path == "/proc/self/mountinfo":
            text = self._own_mounts(text)
        if text is not None and path == "/proc/self/cgroup":
            # A container's or job's number; later questions hold it too, and must be found again.
            found = sorted(set(re.findall(r"[0-9a-f]{12,64}", text)))
            self.redact.words += [(re.compile(one), "<id>") for one in found]
        self._keep(f"read {self.redact(path)}", text or "", missing=text is None)
        return text

    def _own_mounts(self, text: str) -> str:
        """Mounts that hold a place the checks ask about, and control groups; the others name folders of somebody's."""
        asked = [*self.live.places.values(), *(f"{place}/x" for place in ("/tmp", "/var/tmp", "/dev/shm"))]  # noqa: S108
        kept = []
        for line in text.splitlines():
            point = (line.split(" ") + [""] * 5)[4]
            above = any(f"{place}/".startswith(f"{point.rstrip('/')}/") for place in asked)
            if above or point.startswith("/sys/fs/cgroup"):
                kept.append(line)
        return "".join(f"{line}\n" for line in kept)

    def glob(self, pattern: str) -> tuple[str, ...]:
        """List and write down."""
        found = self.live.glob(pattern)
        self._keep(f"glob {self.redact(pattern)}", "\n".join(found))
        return found

    def env(self, name: str) -> str | None:
        """Read and write down; a secret's value never gets this far."""
        value = self.live.env(name)
        self._keep(f"env {name}", value or "", missing=value is None, secret=is_secret_name(name))
        return value

    def inside(
        self, script: str, args: dict[str, str] | None = None, timeout_s: float = 120.0
    ) -> dict[str, Any]:
        """Ask and write down."""
        answer = self.live.inside(script, args, timeout_s)
        self._keep(
            questions.inside(script, args), json.dumps(answer, indent=1, ensure_ascii=False) + "\n", "json"
        )
        return answer

    def http(self, method: str, path: str, json: dict[str, Any] | None = None) -> Reply:
        """Ask and write down."""
        reply = self.live.http(method, path, json)
        self._keep(questions.http(method, path, json), reply.body, status=reply.status)
        return reply


def own_paths(pth: str) -> str:
    """What a ``.pth`` file is asked about: its folders, and of code whether it puts a folder before all others."""
    kept = []
    for line in pth.splitlines():
        if line.startswith(("import ", "import\t")):
            kept.append("import sys; sys.path.insert(...)" if "sys.path.insert" in line else "import ...")
        elif line.strip() and not line.startswith("#"):
            kept.append(line)
    return "".join(f"{line}\n" for line in kept)


def _about(ask: str, stack: str) -> str:
    """The stack that a question is kept for: "" where it is about the machine alone."""
    about_target = ask.startswith(("inside ", "http ")) or any(name in ask for name in TARGET_PLACEHOLDERS)
    return stack if about_target else ""


def kept(folder: Path, ask: str, stack: str) -> bool:
    """Whether the recording has an answer to the question about that stack."""
    path = folder / "index.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    return any((row["stack"], row["ask"]) == (_about(ask, stack), ask) for row in rows)


def keep(
    folder: Path,
    ask: str,
    stack: str,
    text: str,
    suffix: str = "txt",
    **extra: Any,  # noqa: ANN401 - bool, int or str as JSON takes
) -> None:
    """Write one answer into a recording, in place of an earlier one to the same question about the same stack.

    ``extra`` is what came with the text (``rc``, ``err``, ``missing`` ...); what is false or empty is left out.
    """
    stack = _about(ask, stack)
    row: dict[str, Any] = {
        "ask": ask,
        "stack": stack,
        **{key: value for key, value in extra.items() if value},
    }
    (folder / "answers").mkdir(parents=True, exist_ok=True)
    if text:
        slug = re.sub(r"[^a-z0-9]+", "-", ask.lower()).strip("-")[:60]
        row["file"] = f"{slug}-{hashlib.sha256(f'{stack} {ask}'.encode()).hexdigest()[:6]}.{suffix}"
        (folder / "answers" / row["file"]).write_text(text, encoding="utf-8")
    path = folder / "index.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    for old in [old for old in rows if (old["stack"], old["ask"]) == (stack, ask)]:
        rows.remove(old)
        if "file" in old and old["file"] != row.get("file"):
            (folder / "answers" / old["file"]).unlink(missing_ok=True)
    rows.append(row)
    rows.sort(key=lambda old: (old["stack"], old["ask"]))
    path.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def describe(folder: Path, about: dict[str, Any]) -> None:
    """Write ``machine.toml``."""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in about.items()]
    (folder / "machine.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def finish(folder: Path, stacks: tuple[str, ...]) -> None:
    """Write ``machine.toml``: name (the folder's), what the machine is in a line, today's date, and its stacks."""
    live = LiveProbe(workspace())
    cores, memory = (
        live.run(["nproc"]).out.strip(),
        proc.meminfo_mib(live.read_text("/proc/meminfo"), "MemTotal") or 0,
    )
    gpus = nvidia.gpus(live.run(nvidia.ARGV).out)
    cards = ", ".join(sorted({one.name for one in gpus})) or "no GPU"
    what = f"{cores} cores, {memory / 1024:.0f} GiB, {f'{len(gpus)} x {cards}' if gpus else cards}"
    recorded = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    describe(folder, {"name": folder.name, "what": what, "recorded": recorded, "stacks": list(stacks)})
