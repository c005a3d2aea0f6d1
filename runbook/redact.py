"""What identifies a machine or a person, and what opens a door, is replaced before it is written down or given away.

Whole tokens are replaced, never substrings (a tool that replaced the user name as a substring ate the word "root" in
every container's report), and what a diagnosis rests on stays: verdicts, error lines, versions. Two forms: a recording
says ``<token>``; what leaves the machine says ``<secret-1>``, the same for the same secret, and is counted.

No pattern may take more than linear time: logs are written by strangers. So none begins with an unbounded repetition
that could begin at any character.
"""

import re
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

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
_SERIAL = re.compile(r"(?im)(serial(?:[ _]number)?\s*[:=,]\s*)(?!\[?n/a)([^\s<]\S*)")

# A password may hold an "@" itself: all up to the last one before the path goes.
_URL_USER = re.compile(r"(?<!\w)(\w+://)([^\s/@:\"'<>]*:[^\s/\"'<>]+)@")
# Shapes that name their issuer. hf_ alone begins many a name (hf_overrides, hf_transfer): a token has capitals or digits.
_SHAPED = re.compile(
    r"(?<![A-Za-z0-9])(?:hf_(?=[a-z]*[A-Z0-9])[A-Za-z0-9]{8,}|hf_[a-z]{30,}|sk-[A-Za-z0-9_-]{8,}|gh[pousr]_[A-Za-z0-9]{16,}"
    r"|github_pat_\w{20,}|glpat-[\w-]{16,}|nvapi-[\w-]{16,}|xox[abprs]-[\w-]{10,}|AIza[\w-]{30,}|(?:AKIA|ASIA)[0-9A-Z]{12,}"
    r"|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*)"
)
# Prose speaks of bearers too: "Bearer authentication is required".
_BEARER = re.compile(
    r"\bBearer[ \t]+(?!(?:tokens?|auth\w*|realm|scheme|error|is|and|or|key|api|header|required|missing|format)\b)([^\s\"'<>,;{}$]+)"
)
_AUTHORIZATION = re.compile(
    r"(?i)\b(authorization[\"']?[ \t]*[:=][ \t]*[\"']?)(?:basic|bearer|token|negotiate)[ \t]+([^\s\"'<>,;{}$]+)"
)
# "token" begins a word of its own: tiktoken is a package.
_LABEL = r"(?<![a-z0-9])(?:(?:auth|access|refresh|hub)?token|secret|password|passwd|passphrase|(?:api|access|private|secret)[_-]?key)"
# A name that ends in TOKEN and the like, a sign, and a value of some length: max_num_batched_tokens="2048" and
# eos_token="<|im_end|>" are none. In a list and in JSON within JSON too, as vLLM prints its arguments.
_LABELLED = re.compile(
    rf"(?i)(?<![a-z0-9_-])([a-z0-9_-]*?{_LABEL})(\\?[\"']?[ \t]*[=:][ \t]*\[?\\?[\"']?)(?![<\[{{($])([^\s,\"'{{}}\]\\]{{6,}})"
)
_QUOTED = re.compile(
    r"(?i)((?:secret|password|passwd|passphrase)\\?[\"']?[ \t]*[=:][ \t]*\\?([\"']))(?!<)([^\"'\n\\]+)(?=\\?\2)"
)
# A variable: its name in capitals decides, whatever the value's length. Counts and switches are told apart below.
_NAME = re.compile(r"(?<![A-Za-z0-9_])([A-Z0-9_]+)\\?[\"']?[ \t]*[=:][ \t]*")
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|API_?KEY)(?:_|$)|_KEY(?:_|$)"
)
_VALUE = re.compile(r"\\?\"(?!<)([^\"\\\n]+)|\\?'(?!<)([^'\\\n]+)|(?![<$*(\[])([^\s\"',}]+)")
_NO_SECRET = re.compile(
    r"\d{1,6}|(?i:true|false|none|null|not|set|unset|yes|no|missing|found|required|invalid|is)\W?"
)
# Kubernetes writes the name and the value of a variable in lines of their own.
_NAMED = re.compile(
    r"(name[\"']?:[ \t]*[\"']?[A-Z0-9_]*(?:KEY|TOKEN|SECRET|PASSWORD)[\"']?,?\s{1,80}[\"']?value[\"']?:[ \t]*[\"']?)(?!<)([^\s\"',}]+)"
)
_FLAG = re.compile(
    r"(?i)(?<![\w-])(--[a-z-]{0,40}(?:api[_-]?key|token|secret|password|passphrase)[\"']?,?\s{1,80}[\"']?)"
    r"(?!(?:is|are|was|flag|option|argument|or|and|must|not|for|to|in|with|expects?|requires?|if|when)\b)([^\s\"',<\-\]][^\s\"',\]]*)"
)
_SIGNED = re.compile(
    r"(?i)([?&](?:[\w-]{0,40}signature|x-amz-[\w-]{1,40}|key-pair-id|policy)=)([^&\s\"'<>]+)"
)
_KEY_MARK = re.compile(r"-----(BEGIN|END) [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----")
_KEY_LINES = re.compile(r"(?:(?:\s|\\[nr])*[A-Za-z0-9+/=]{16,})*")
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]+")

_EMAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]+@(?:[A-Za-z0-9-]{1,63}\.)+(?!(?:service|slice|scope|socket|target|mount|log|txt|json|ipynb|py|so|sh|gz|whl|toml|ya?ml|xml|html)\b)[A-Za-z]{2,24}(?![\w(])"
)
_CLOUD_HOST = re.compile(r"\bip(?:-\d{1,3}){4}\b(?:\.[a-z0-9-]+)*")
# At the root, or below where homes of a cluster lie: a folder called home elsewhere holds no people.
_HOMES = re.compile(
    r"((?:(?:(?<![\w.~>-])|(?<=-[IL]))(?:/(?:data|mnt|export|nfs|net|var|mnt/[a-z]))?/(?:home|Users)/|\b[A-Z]:\\{1,2}Users\\{1,2}))([^/\\\s:\"'<>,;)\]}|]+)"
)

# Four-part numbers that are versions, not addresses, are common in this field (cuDNN 9.19.0.56): they follow a name or '=='.
_VERSION_BEFORE = re.compile(
    r"(?i)(?:[=<>~!]=[ ]?|version\W{0,3}|(?:cudnn|nccl|tensorrt|cublas|cufft|cufile|curand|cusolver|cusparse|cusparselt|nvjitlink|nvtx|nvrtc|cupti)\W{0,3}"
    r"|cu\d\d(?:[-_]|[ ]+)|(?:^|\s)nvidia[-\w]*[ ]+|RFC \d+, |section |(?<![a-z])v)$"
)
_OF_VERSIONS = re.compile(r"(?i)\{site\}|dist-info|METADATA|version|cudnn|nccl|stacks/|tables/")
_NAME_BEFORE = re.compile(r"[-_]$|\.so\.$")
_PRIVATE = re.compile(r"10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|169\.254\.")
# What in nvidia-smi's XML names one card, one chassis or one person. N/A stays, and part numbers, which all cards share.
_XML_OWN = re.compile(
    r"(?s)(<(serial|uuid|pdi|chassis_serial_number|gpu_fabric_guid|clusterUuid|gpu_uuid)>)(?!\s*(?:N/A)?\s*</)[^<]*(</\2>)"
)
_XML_PROGRAM = re.compile(r"(?s)(<process_name>)((?:(?!</?process_name>).)*)(</process_name>)")
_KNOWN_PROGRAM = re.compile(
    r"(?:.*/)?(python[0-9.]*|VLLM::\w+|ray::\w+|Xorg|gnome-shell|nvidia-[\w-]+)(?:\s.*)?", re.DOTALL
)
_XML = "<nvidia_smi_log>"

# Terminal codes, NULs, zero-width and direction characters: between the letters of a word no reader sees them.
_UNSEEN = re.compile(
    r"\x1b(?:\[[0-9;:<=>?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)?)|[\x00\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
)

# Names that identify nobody and stand in texts for something else: "vm" in /proc/sys/vm, "root" everywhere, a verdict.
COMMON_NAMES = frozenset({
    "vm", "host", "node", "gpu", "server", "worker", "master", "localhost", "box", "root", "user", "ubuntu", "debian", "admin",
    "ok", "warn", "fail", "skip", "unknown", "none", "null", "true", "false", "error", "warning", "info", "debug", "critical", "failed",
    "healthy", "cause", "vllm", "cuda", "nvidia", "torch", "python", "triton", "ray", "nccl", "qwen", "model", "models", "engine", "core",
    "linux", "docker", "container", "kernel", "driver", "home", "work", "data", "app", "test", "dev", "main", "runner", "jovyan", "empty",
})  # fmt: skip


class Redactor:
    """Replaces what identifies a machine or a person. ``places`` maps placeholders to this machine's folders."""

    def __init__(self, places: Mapping[str, str], host: str = "", user: str = "") -> None:
        longest_first = sorted(places.items(), key=lambda item: -len(item[1]))
        self.places = [(name, place) for name, place in longest_first if len(place) > 1]
        self.words = [
            (re.compile(rf"(?<![\w.-]){re.escape(word)}(?![\w-])"), kind)
            for word, kind in ((host, "host"), (user, "user"))
            if len(word) > 1 and word.lower() not in COMMON_NAMES
        ]

    def __call__(self, text: str) -> str:
        """``text`` with every such token replaced; it keeps its number of lines.

        Colours and other unseen characters are no way around it; lines in which nothing was replaced keep theirs.
        """
        seen = _UNSEEN.sub("", text)
        if seen == text:
            return self._whole(text)
        clean = self._whole(seen)
        if clean == seen:
            return text
        lines = zip(text.split("\n"), seen.split("\n"), clean.split("\n"), strict=True)
        return "\n".join(old if before == after else after for old, before, after in lines)

    def label(self, kind: str, seen: str) -> str:  # noqa: ARG002 - what was seen decides in the numbered form
        """What stands in the place of a token."""
        return f"<{kind}>"

    def _whole(self, text: str) -> str:
        return self._xml(text) if _XML in text else self._plain(text)

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
            text = re.sub(rf"{re.escape(place)}(?![\w-])", lambda _, name=name: self._home(name), text)  # type: ignore[misc]
        text = _UUID.sub(lambda one: f"{one[1] or ''}{self.label('uuid', one[0])}", text)
        text = self._secrets(text)
        text = _SERIAL.sub(lambda one: one[1] + self.label("serial", one[2]), text)
        text = _MAC.sub(lambda one: self.label("mac", one[0].lower()), text)
        text = _BUILDER.sub(lambda one: self.label("builder", one[0]), text)
        text = _IPV6.sub(lambda one: self.label("ip", one[0].lower()), text)
        text = _IPV4.sub(
            lambda one: one[0] if self._is_version(text, one) else self.label("ip", one[0]), text
        )
        for word, kind in self.words:
            text = word.sub(lambda one, kind=kind: self.label(kind, one[0]), text)  # type: ignore[misc]
        return text

    def _is_version(self, text: str, one: re.Match[str]) -> bool:
        before = text[max(0, one.start() - 40) : one.start()].rpartition("\n")[2]
        if _VERSION_BEFORE.search(before):
            return True
        return bool(_NAME_BEFORE.search(before)) and not _PRIVATE.match(one[0])

    def _home(self, name: str) -> str:
        return name

    def _secrets(self, text: str) -> str:
        text = self._keys(text)
        text = _URL_USER.sub(lambda one: f"{one[1]}{self.label('credentials', one[2])}@", text)
        text = _AUTHORIZATION.sub(lambda one: one[1] + self.label("token", one[2]), text)
        text = _BEARER.sub(lambda one: self.label("token", one[1]), text)
        text = _SHAPED.sub(lambda one: self.label("token", one[0]), text)
        text = self._variables(text)
        for pattern in (_QUOTED, _LABELLED):
            text = pattern.sub(
                lambda one: one[0][: one.start(3) - one.start()] + self.label("token", one[3]), text
            )
        for pattern in (_NAMED, _FLAG, _SIGNED):
            text = pattern.sub(lambda one: one[1] + self.label("token", one[2]), text)
        return text

    def _variables(self, text: str) -> str:
        """A secret is replaced; TOKEN_LIMIT=512 and HF_TOKEN=not set are none."""
        out, done = [], 0
        for name in _NAME.finditer(text):
            secret = name.start() >= done and _SECRET_NAME.search(name[1])
            value = _VALUE.match(text, name.end()) if secret else None
            if value is None or not _is_secret(name[1], value[value.lastindex or 0]):
                continue
            start, end = value.span(value.lastindex or 0)
            out += [text[done:start], self.label("token", text[start:end])]
            done = end
        return "".join((*out, text[done:]))

    def _keys(self, text: str) -> str:
        """Private keys in PEM, also one whose beginning or end was cut off; their lines stay, empty."""
        if "PRIVATE KEY" not in text:
            return text
        out, done = [], 0
        marks = list(_KEY_MARK.finditer(text))
        for at, mark in enumerate(marks):
            if mark.start() < done:
                continue
            after = marks[at + 1] if at + 1 < len(marks) else None
            if mark[1] == "END":
                start, end = _key_start(text, mark.start(), done), mark.end()
            elif after and after[1] == "END":
                start, end = mark.start(), after.end()
            else:
                found = _KEY_LINES.match(text, mark.end())
                start, end = mark.start(), found.end() if found else mark.end()
            key = text[start:end]
            out += [text[done:start], self.label("private-key", key), "\n" * key.count("\n")]
            done = end
        return "".join((*out, text[done:]))


class Numbered(Redactor):
    """For what leaves the machine: the same secret becomes the same ``<secret-1>``, and replacements are counted.

    Besides what a recording replaces: e-mail addresses, other people's home folders, and ``known`` secrets wherever they
    stand. What was once seen to be a secret is known from then on: redact twice, and the first mention goes too.
    """

    def __init__(
        self, places: Mapping[str, str], host: str = "", user: str = "", known: Iterable[str] = ()
    ) -> None:
        super().__init__(places)
        self.words = [
            # A host's name without its domain and with any.
            (re.compile(rf"(?i)(?<![\w.-]){re.escape(word)}{more}(?![\w-])"), kind)
            for word, kind, more in (
                (host.partition(".")[0], "host", r"(?:\.[a-z0-9-]+)*"),
                (user, "user", ""),
            )
            if len(word) > 1 and word.lower() not in COMMON_NAMES
        ]
        self.known = {one for one in known if len(one) >= SHORTEST and one.lower() not in COMMON_NAMES}
        self.numbers: dict[tuple[str, str], int] = {}
        self.distinct: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        self.open, self.close = "<", ">"
        self.versions: set[str] = set()
        self.of_versions = False

    def label(self, kind: str, seen: str) -> str:
        """``<kind-n>``, n by the order in which they were first seen."""
        kind = {"token": "secret"}.get(kind, kind)
        seen = seen.partition(".")[0].lower() if kind == "host" else seen
        if kind == "secret" and _telling(seen) and len(self.known) < MOST_KNOWN:
            self.known.add(seen)
        if (kind, seen) not in self.numbers:
            self.distinct[kind] += 1
            self.numbers[kind, seen] = self.distinct[kind]
        self.counts[kind] += 1
        return f"{self.open}{kind}-{self.numbers[kind, seen]}{self.close}"

    def again(self) -> "Numbered":
        """One that counts from nothing and knows all secrets and versions that this one saw."""
        fresh = Numbered({})
        fresh.places, fresh.words = self.places, self.words
        fresh.known, fresh.versions = set(self.known), set(self.versions)
        return fresh

    def tree(self, value: Any, kept: frozenset[str] = frozenset()) -> Any:  # noqa: ANN401 - JSON
        """A JSON value with its texts redacted; those under the names in ``kept`` are ours and stay."""
        if isinstance(value, str):
            return self(value)
        if isinstance(value, list):
            return [self.tree(one, kept) for one in value]
        if isinstance(value, dict):
            # A reading has its name and origin beside it: 9.10.2.21 from a package's metadata is a version.
            about = f"{value.get('name')} {value.get('origin')}" if "origin" in value else ""
            before, self.of_versions = self.of_versions, _OF_VERSIONS.search(about) is not None
            told = {key: one if key in kept else self.tree(one, kept) for key, one in value.items()}
            self.of_versions = before
            return told
        return value

    def _is_version(self, text: str, one: re.Match[str]) -> bool:
        """Also what was a version elsewhere: a sentence that compares two names their library once."""
        if self.of_versions or super()._is_version(text, one):
            self.versions.add(one[0])
            return True
        return one[0] in self.versions and not _PRIVATE.match(one[0])

    def _whole(self, text: str) -> str:
        if _XML not in text:
            return self._plain(text)
        # Labels in square brackets leave it XML; nothing is exempt, since such an answer may lie in any log.
        self.open, self.close = "[", "]"
        text = _XML_OWN.sub(
            lambda one: one[1] + self.label("serial", one[0][len(one[1]) : -len(one[3])].strip()) + one[3],
            text,
        )
        text = _XML_PROGRAM.sub(lambda one: f"{one[1]}{_program(one[2])}{one[3]}", text)
        text = self._plain(text)
        self.open, self.close = "<", ">"
        return text

    def _home(self, name: str) -> str:
        self.counts["home"] += 1
        return name

    def _plain(self, text: str) -> str:
        for secret in sorted(self.known, key=lambda one: (-len(one), one)):
            if secret in text:
                text = re.sub(
                    rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])",
                    lambda one: self.label("token", one[0]),
                    text,
                )
        text = super()._plain(text)
        text = _CLOUD_HOST.sub(lambda one: self.label("host", one[0]), text)
        text = _EMAIL.sub(lambda one: self.label("email", one[0].lower()), text)
        return _HOMES.sub(
            lambda one: one[0] if one[2].lower() in COMMON_NAMES else one[1] + self.label("user", one[2]),
            text,
        )


SHORTEST = 6
"""A shorter value of a secret variable is replaced at its name, not wherever it stands: it may be a word."""
MOST_KNOWN = 1000
"""Each is looked for in every text; a log that holds more made them up."""


def numbered(environ: Mapping[str, str], more: Iterable[str] = ()) -> Numbered:
    """That of this machine: its host and user, the home folder as ``~``, and the values of its secret variables."""
    user = environ.get("USER") or environ.get("LOGNAME") or ""
    secrets = [value for name, value in environ.items() if _is_secret(name.upper(), value)]
    return Numbered({"~": environ.get("HOME", "")}, socket.gethostname(), user, (*secrets, *more))


def _is_secret(name: str, value: str) -> bool:
    """Whether a variable holds one. A password may be any word; of the others a count or a switch is none."""
    found = _SECRET_NAME.search(name)
    return found is not None and ("PASS" in found[0] or not _NO_SECRET.fullmatch(value))


def _telling(secret: str) -> bool:
    """Long and mixed enough to be no word of anybody's prose."""
    return len(secret) >= SHORTEST + 2 and any(map(str.isdigit, secret)) and any(map(str.isalpha, secret))


def _key_start(text: str, end: int, least: int) -> int:
    """Where the lines of a key begin whose first line was cut off."""
    start = end
    while start > least:
        line = text.rfind("\n", least, start - 1) + 1 or least
        if not _KEY_LINE.fullmatch(text[line : start - 1].strip()):
            break
        start = line
    return start


def _program(line: str) -> str:
    known = _KNOWN_PROGRAM.fullmatch(line.strip())
    return known[1] if known else "[redacted]" if line.strip() else ""
