"""What a run of uv took, and why it could not go on: from its log, where a disk, a network or a file is to blame."""

import re
from dataclasses import dataclass
from enum import Enum

from runbook.parse.uv_output import lines

_STEP = re.compile(
    r"(Resolved|Prepared|Installed|Uninstalled|Bytecode compiled|Audited|Checked) (\d+) (?:packages?|files?) in (.+)$"
)
_TIME = re.compile(r"(?:(\d+)m )?(\d+(?:\.\d+)?)(ms|s)$")
_PACKAGE = re.compile(
    r"Failed to (?:download and build|download|build|install:?|fetch)[^`(]*[`(]([^`()\s]+==[^`()\s]+)[`)]"
)
_STATUS = re.compile(r"\((\d{3}) [A-Z]|\b(401|403) (?:Unauthorized|Forbidden)")
_PLACE = re.compile(r"`(?!--)([^`]+)`|(?: to | at |directory: )(/\S+?)(?=: |$)")


class Kind(str, Enum):
    """What a failed run of uv is to blame on."""

    REFUSED = "connection refused"
    NAME = "name not resolved"
    TIMEOUT = "timeout"
    CERTIFICATE = "certificate"
    LOGIN = "login"
    FORBIDDEN = "forbidden"
    SERVER = "server error"
    CUT = "connection cut"
    HASH = "hash mismatch"
    ARCHIVE = "damaged archive"
    SPACE = "no space left"
    READ_ONLY = "read-only file system"
    PERMISSION = "permission denied"
    LOCK = "lock held"
    OFFLINE = "not in the cache"
    FOLDER = "folder of wheels"
    NETWORK = "network"


@dataclass(frozen=True)
class Fault:
    """One cause: what was seen, what to do, and the package it happened to ("" when it is no one package)."""

    kind: Kind
    seen: str
    do: str
    package: str


@dataclass(frozen=True)
class Timed:
    """One step of uv: of how many packages or files, in how many seconds."""

    count: int
    seconds: float


_AGAIN = "run it again; what was fetched whole is kept in uv's cache"
_PROXY = (
    "check the index, proxy and mirror settings (UV_DEFAULT_INDEX, HTTPS_PROXY, uv.toml), then run it again"
)
# The innermost cause decides, so the rows go from the particular to the general. Wordings: Linux's errno texts, and
# those of uv (crates/uv-client/src/error.rs, uv-extract/src/error.rs, uv-distribution/src/error.rs) and of its HTTP library.
_CAUSES: tuple[tuple[Kind, str, str, str], ...] = (
    (Kind.FOLDER, r"Failed to read `--find-links` directory", "the folder of wheels cannot be read: {place}", "name the folder that holds the wheels (UV_FIND_LINKS or --find-links)"),
    (Kind.SPACE, r"No space left on device|\(os error 28\)|Disk quota exceeded|\(os error 122\)", "the disk is full: {place}", "free space there, or move uv's cache (UV_CACHE_DIR) or the workspace (RUNBOOK_HOME) to another disk"),
    (Kind.READ_ONLY, r"Read-only file system|\(os error 30\)", "the file system is read-only: {place}", "mount it writable, or move the workspace (RUNBOOK_HOME) or uv's cache (UV_CACHE_DIR)"),
    (Kind.PERMISSION, r"Permission denied|\(os error 13\)|Operation not permitted|\(os error 1\)", "no permission: {place}", "run as the owner of that folder, or move the workspace (RUNBOOK_HOME) or uv's cache (UV_CACHE_DIR)"),
    (Kind.HASH, r"Hash mismatch for ", "a file that was fetched is not the one the lock names: its hash differs", "do not install it; ask whoever keeps the index or mirror, and try another (UV_DEFAULT_INDEX)"),
    (Kind.LOCK, r"Timeout \(\d+s\) when waiting for lock|Cache is currently in-use", "another uv holds a lock on its cache", "wait for the other uv to end (ps -C uv -f), then run it again"),
    (Kind.TIMEOUT, r"operation timed out|network timeout|deadline has elapsed|\(os error 110\)", "the index did not answer in time", f"{_AGAIN}; UV_HTTP_TIMEOUT=120 gives a slow one more time"),
    (Kind.CUT, r"end of file before message length|connection closed before message completed|error decoding response body|unexpected EOF|Connection reset|\(os error 104\)|\(os error 32\)", "the connection was cut while a file came", _AGAIN),
    (Kind.ARCHIVE, r"Invalid zip file|invalid package format|Failed to extract archive|Bad uncompressed size|Bad CRC|Failed to read from zip", "a wheel is damaged", "clear it from uv's cache (uv cache clean NAME) and run it again; if it comes back damaged, the index or proxy hands out a wrong file"),
    (Kind.NAME, r"dns error|failed to lookup address|Name or service not known|Temporary failure in name resolution|No address associated", "the name of the index does not resolve", f"check DNS; {_PROXY}"),
    (Kind.REFUSED, r"Connection refused|\(os error 111\)|Network is unreachable|\(os error 101\)|No route to host|\(os error 113\)", "nothing answers at the address of the index or of the proxy", _PROXY),
    (Kind.CERTIFICATE, r"invalid peer certificate|certificate verify failed|UnknownIssuer|self.signed certificate", "the certificate of the index is not trusted", "behind a proxy that opens TLS set SSL_CERT_FILE to its certificate, or UV_SYSTEM_CERTS=1 to trust what the system trusts"),
    (Kind.OFFLINE, r"network was disabled|not found in the cache|needs? to be downloaded from a registry", "a package is not in uv's cache, and the network is off", "fetch the wheels where there is a network, carry them over and name their folder (UV_FIND_LINKS)"),
)  # fmt: skip
_STATUSES = {
    "401": (Kind.LOGIN, "the index wants a login (401)", "give uv one: uv auth login, ~/.netrc, or UV_INDEX_NAME_USERNAME and _PASSWORD"),
    "403": (Kind.FORBIDDEN, "the index refuses the file (403)", "check the address of the index and the rights of your login"),
    "407": (Kind.LOGIN, "the proxy wants a login (407)", "put it into HTTPS_PROXY, as your administrator says"),
}  # fmt: skip


def timings(text: str) -> dict[str, Timed]:
    """Step -> count and seconds: ``resolved``, ``prepared``, ``installed``, ``uninstalled``, ``compiled``, ``audited``."""
    found = {}
    for line in lines(text):
        if (step := _STEP.match(line)) and (time := _TIME.match(step[3].strip())):
            seconds = int(time[1] or 0) * 60 + float(time[2]) / (1000 if time[3] == "ms" else 1)
            name = {"Bytecode compiled": "compiled", "Checked": "audited"}.get(step[1], step[1].lower())
            found[name] = Timed(int(step[2]), round(seconds, 4))
    return found


def fault(text: str) -> Fault | None:
    """The cause of a failed run, when it lies in a network, a disk or a file; None otherwise."""
    told = [line for line in lines(text) if line]
    whole = " ".join(told)
    named = _PACKAGE.search(whole)
    package = named[1] if named else ""
    for kind, wording, seen, do in _CAUSES:
        if line := next((line for line in told if re.search(wording, line)), None):
            place = _PLACE.search(line)
            where = (place[1] or place[2]) if place else "see the log"
            return Fault(kind, seen.format(place=where), do, package)
    if status := _STATUS.search(whole):
        code = status[1] or status[2]
        known = _STATUSES.get(code)
        kind, seen, do = known or (Kind.SERVER, f"the index answers with an error ({code})", _AGAIN)
        return Fault(kind, seen, do, package)
    if "error sending request" in whole:
        return Fault(Kind.NETWORK, "the index could not be reached", _PROXY, package)
    return None
