"""Ask a live machine and write every answer down, redacted, in the form ``replay`` reads.

What is replaced is said in ``redact.py``: this machine's folders (by placeholders), host and user name, GPU and disk
UUIDs, serial numbers, MAC and non-loopback IP addresses, credentials in URLs, and secrets.
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
from runbook.redact import Redactor
from runbook.workspace import workspace


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
            self.redact.words += [(re.compile(one), "id") for one in found]
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
