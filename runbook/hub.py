"""What a hub says of a repository, without its weights: files, sizes, hashes, the commit behind a revision; and a skeleton of it.

Two sources: ``hf``, the Hugging Face hub or a mirror of it (``HF_ENDPOINT``, ``HF_TOKEN`` and ``HF_HUB_OFFLINE`` are
honoured as huggingface_hub honours them), and ``modelscope`` (``MODELSCOPE_ENDPOINT``). A token is sent and never shown.

A skeleton is a folder that every reader of checkpoints takes for the repository, made from a few megabytes: small files
are whole, each .safetensors is a sparse file of its real length that holds only its header, other large files are sparse.
"""

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote, quote_plus

import httpx

from runbook.errors import ActionFailed, BadParameter
from runbook.workspace import write_whole

HF, MODELSCOPE = "hf", "modelscope"
SOURCES = (HF, MODELSCOPE)
ENDPOINTS = {HF: ("HF_ENDPOINT", "https://huggingface.co"), MODELSCOPE: ("MODELSCOPE_ENDPOINT", "https://modelscope.cn")}  # fmt: skip
TRUE = ("1", "ON", "YES", "TRUE")
RECORD = ".cache/runbook/source.json"
RECORD_SCHEMA = "source/1"
# Where huggingface_hub notes commit, hash and time of each file of a local folder; its own tools then know the files.
NOTES = ".cache/huggingface/download"
TIMEOUT_S = 30.0
AT_ONCE = 8
READ_LIMIT = 50_000_000
WHOLE_LIMIT = 25_000_000  # a tokenizer of 248,077 entries takes about 13 MB as JSON
FIRST_PART = 1 << 16
WEIGHTS = ".safetensors"
LENGTH = 8  # bytes that say how long the header is
HEADER_LIMIT = 16_000_000  # the longest header of a published Qwen3.5 shard is a few hundred kB


class Unreachable(ActionFailed):
    """The hub gave no answer; nothing follows from that for the repository (exit code 3 where a verdict was asked for)."""


@dataclass(frozen=True)
class RemoteFile:
    """One file of a repository: bytes, sha256 of its content ("" where the hub names none), and the git hash that stands in for it.

    ``commit`` is what the file is pinned to.
    """

    path: str
    size: int
    sha256: str
    blob: str
    commit: str
    url: str


@dataclass(frozen=True)
class Listing:
    """A repository at a revision. ``commit`` is "" where the hub names none for a branch, as ModelScope does.

    ``gated``: its files want a token whose account accepted the terms, although the list of them is public.
    """

    source: str
    endpoint: str
    repo: str
    revision: str
    commit: str
    files: tuple[RemoteFile, ...]
    gated: bool = False

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(one.size for one in self.files)


@dataclass(frozen=True)
class Skeleton:
    """A folder made by ``examine``; ``read`` counts the bytes that were fetched for it."""

    listing: Listing
    folder: Path
    read: int


def endpoint(source: str) -> str:
    """The address asked, from its environment variable or the public one.

    Raises:
        BadParameter: there is no such source, or the variable holds no address.
    """
    if source not in SOURCES:
        raise BadParameter(f"--source {source!r}", f"one of {', '.join(SOURCES)}", "name one of these")
    variable, default = ENDPOINTS[source]
    named = os.environ.get(variable, "").rstrip("/") or default
    if not re.match(r"https?://[^/\s]+", named):
        raise BadParameter(
            f"{variable}={named!r} is no address", f"such as {default}", f"export {variable}={default}"
        )
    return named


def shown(address: str) -> str:
    """An address without the credentials it may hold."""
    return re.sub(r"^(\w+://)?[^/]*@", r"\1", address)


def headers(source: str) -> dict[str, str]:
    """What a request carries, the token included; never to be printed."""
    if source == MODELSCOPE:
        return {}
    from huggingface_hub.utils import build_hf_headers  # noqa: PLC0415 - half a second that most commands need not pay

    return {str(name): str(value) for name, value in build_hf_headers(library_name="vllm-qwen-runbook").items()}  # fmt: skip


def listing(repo: str, revision: str = "", source: str = HF) -> Listing:
    """What the hub says of a repository.

    Raises:
        BadParameter: the source or its address is none.
        Unreachable: no answer, or HF_HUB_OFFLINE is set.
        ActionFailed: it is absent, private or gated, the token is wrong, or there is no such revision.
    """
    found = _modelscope(repo, revision or "master") if source == MODELSCOPE else _hf(repo, revision or "main")
    for one in found.files:
        parts = PurePosixPath(one.path).parts
        if not parts or one.path.startswith("/") or ".." in parts or "\\" in one.path or parts[0] == ".cache":
            raise ActionFailed(
                f"{repo} lists a file {one.path!r}", "paths below the repository", "do not fetch from there"
            )
    return found


def _hf(repo: str, revision: str) -> Listing:
    address = endpoint(HF)
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in TRUE:
        raise Unreachable(
            "HF_HUB_OFFLINE is set, so the hub is not asked",
            "a hub that may be asked, or a folder",
            "unset HF_HUB_OFFLINE, or name the folder of a checkpoint",
        )
    from huggingface_hub import HfApi  # noqa: PLC0415 - as above
    from huggingface_hub.errors import HFValidationError, HTTPError  # noqa: PLC0415

    try:
        info = HfApi(endpoint=address).model_info(repo, revision=revision, files_metadata=True, timeout=TIMEOUT_S)  # fmt: skip
    except HFValidationError as why:
        raise BadParameter(f"{repo!r} is no repository of the hub", "OWNER/NAME", str(why)) from why
    except (HTTPError, OSError) as why:
        raise refused(why, repo, address, revision) from why
    files = [
        RemoteFile(
            str(each.rfilename),
            _size(each.size, repo, address),
            str(each.lfs.sha256) if each.lfs else "",
            str(each.blob_id or ""),
            str(info.sha),
            f"{address}/{repo}/resolve/{info.sha}/{quote(str(each.rfilename))}",
        )
        for each in info.siblings or ()
    ]
    return Listing(HF, address, repo, revision, str(info.sha), tuple(files), bool(info.gated))


def _size(given: Any, repo: str, address: str) -> int:  # noqa: ANN401 - from JSON
    if isinstance(given, int) and given >= 0:
        return given
    raise ActionFailed(
        f"{shown(address)} names no size for a file of {repo}", "the hub's own list of files", "try another mirror"
    )  # fmt: skip


def refused(why: BaseException, repo: str, address: str, revision: str) -> ActionFailed:
    """One clear error for what huggingface_hub raised: what was seen, what was expected, what to do."""
    from huggingface_hub import errors  # noqa: PLC0415 - as above

    status = getattr(getattr(why, "response", None), "status_code", 0)
    place = shown(address)
    page = f"{place}/{repo}"
    token = "a token is set" if os.environ.get("HF_TOKEN") else "no token is set"
    if isinstance(why, errors.GatedRepoError):
        return ActionFailed(
            f"{repo} is gated: {place} answers {status} ({token})",
            "a token of an account that accepted its terms",
            f"accept them on {page}, then export HF_TOKEN=...; or fetch it elsewhere and name the folder",
        )
    if isinstance(why, errors.RevisionNotFoundError):
        return ActionFailed(
            f"{repo} has no revision {revision!r}", "a branch, a tag or a commit", f"see {page}/commits/main"
        )
    if isinstance(why, errors.RepositoryNotFoundError):
        return ActionFailed(
            f"{repo} is not on {place}, or is private ({status}; {token})",
            "a repository that may be read",
            "check the name (runbook model lists the family); for a private one export HF_TOKEN=...",
        )
    if status in (401, 403):
        return ActionFailed(
            f"{place} refuses the request for {repo} ({status}; {token})",
            "a valid token, or none",
            "renew HF_TOKEN, or unset it: the models of the family need none",
        )
    said = f"answers {status}" if status else f"gives no answer ({type(why).__name__}: {str(why).splitlines()[0] if str(why) else ''})"  # fmt: skip
    return Unreachable(
        f"{repo}: {place} {said}",
        "a hub that can be reached",
        "check network and proxy; HF_ENDPOINT names a mirror, runbook fetch --source modelscope takes the other hub, and a folder needs none: -p model=/path",
    )


def _modelscope(repo: str, revision: str) -> Listing:
    address = endpoint(MODELSCOPE)
    base = f"{address}/api/v1/models/{repo}/repo"
    try:
        answer = httpx.get(
            f"{base}/files",
            params={"Revision": revision, "Recursive": "True"},
            timeout=TIMEOUT_S,
            follow_redirects=True,
        )
        body = answer.json() if "json" in answer.headers.get("content-type", "") or answer.is_success else {}
    except (httpx.HTTPError, ValueError) as why:
        raise _no_modelscope(f"gives no answer ({type(why).__name__})", address) from why
    if answer.is_server_error:
        raise _no_modelscope(f"answers {answer.status_code}", address)
    entries = (body.get("Data") or {}).get("Files") if isinstance(body, dict) else None
    if not answer.is_success or not isinstance(entries, list):
        raise ActionFailed(
            f"{shown(address)} answers {answer.status_code} for {repo} at {revision!r}",
            "a public repository and a branch or tag of it, such as master",
            "check the name (runbook model lists the family); a private one has to be fetched by you",
        )
    files = [
        RemoteFile(
            str(each["Path"]),
            _size(each.get("Size"), repo, address),
            str(each.get("Sha256") or ""),
            "",
            str(each.get("Revision") or ""),
            f"{base}?Revision={quote_plus(revision)}&FilePath={quote_plus(str(each['Path']))}",
        )
        for each in entries
        if each.get("Type") != "tree"
    ]
    return Listing(MODELSCOPE, address, repo, revision, "", tuple(files))


def _no_modelscope(said: str, address: str) -> Unreachable:
    return Unreachable(
        f"{shown(address)} {said}",
        "a hub that can be reached",
        "check network and proxy; MODELSCOPE_ENDPOINT names another address, a folder needs none",
    )


def examine(repo: str, revision: str, folder: Path, source: str = HF) -> Skeleton:
    """Make a skeleton of a repository in ``folder``, replacing what lay there; reads less than 50 MB.

    Raises:
        BadParameter, Unreachable, ActionFailed: as ``listing``; also when a part could not be read.
    """
    found = listing(repo, revision, source)
    partial = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    carried = headers(source)
    with httpx.Client(follow_redirects=True, timeout=TIMEOUT_S, headers=carried) as client:
        reader = _Reader(client, found)
        # Headers first, then as many small files as the limit allows, smallest first.
        order = sorted(found.files, key=lambda one: (not one.path.endswith(WEIGHTS), one.size))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda one: reader.put(one, partial / one.path), order))
    seal(partial, found, skeleton=True)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    return Skeleton(found, folder, reader.read)


class _Reader:
    """Puts files into a skeleton, from several threads, and keeps what is read below the limit."""

    def __init__(self, client: httpx.Client, found: Listing) -> None:
        self.client = client
        self.found = found
        self.read = 0
        self._left = READ_LIMIT
        self._lock = threading.Lock()

    def put(self, one: RemoteFile, place: Path) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        data = b""
        if one.path.endswith(WEIGHTS):
            data = self._header(one)
        elif one.size <= WHOLE_LIMIT and self._may_read(one.size):
            data = self._part(one, one.size)
        with place.open("wb") as file:
            file.write(data)
            file.truncate(one.size)

    def _may_read(self, size: int) -> bool:
        with self._lock:
            allowed = size <= self._left
            self._left -= size if allowed else 0
        return allowed

    def _header(self, one: RemoteFile) -> bytes:
        """The length and the header: 8 bytes, little-endian, then so many bytes of JSON."""
        size = min(FIRST_PART, one.size)
        if not self._may_read(size):
            raise ActionFailed(
                f"the headers of {self.found.repo} are more than {READ_LIMIT // 1_000_000} MB",
                "a checkpoint of a few hundred shards",
                "fetch it, then name the folder",
            )
        first = self._part(one, size)
        if len(first) < LENGTH:
            return first
        end = LENGTH + int.from_bytes(first[:LENGTH], "little")
        # What claims to be longer than its file, or than any real header, is a fault for who reads the skeleton.
        if end <= size or end > min(HEADER_LIMIT, one.size) or not self._may_read(end - size):
            return first[:end]
        return first + self._part(one, end, size)

    def _part(self, one: RemoteFile, end: int, start: int = 0) -> bytes:
        if end <= start:
            return b""
        try:
            with self.client.stream("GET", one.url, headers={"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}) as answer:  # fmt: skip
                whole = answer.status_code == httpx.codes.OK
                if not whole and answer.status_code != httpx.codes.PARTIAL_CONTENT:
                    raise ActionFailed(
                        f"{shown(self.found.endpoint)} answers {answer.status_code} for {one.path} of {self.found.repo}",
                        "a file that may be read in parts",
                        "try again; for a gated repository set HF_TOKEN",
                    )
                data = bytearray()
                # A server without ranges sends the file from its start; what is not wanted is not waited for.
                for chunk in answer.iter_bytes(FIRST_PART):
                    data += chunk
                    with self._lock:
                        self.read += len(chunk)
                    if len(data) >= (end if whole else end - start):
                        break
        except httpx.HTTPError as why:
            raise Unreachable(
                f"{one.path} of {self.found.repo} could not be read ({type(why).__name__})",
                "a hub that can be reached",
                "try again; check network and proxy",
            ) from why
        return bytes(data[start:end] if whole else data[: end - start])


def seal(folder: Path, found: Listing, *, skeleton: bool) -> None:
    """Note in a folder where it is from: our own record, and for each file what huggingface_hub notes."""
    now = time.time()
    for one in found.files:
        note = folder / NOTES / f"{one.path}.metadata"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(f"{one.commit}\n{one.sha256 or one.blob}\n{now}\n", encoding="utf-8")
    about = {
        "schema": RECORD_SCHEMA,
        "skeleton": skeleton,
        **asdict(found),
        "endpoint": shown(found.endpoint),
    }
    for each in about["files"]:
        del each["url"]  # it may hold credentials of a mirror, and follows from the rest
    (folder / RECORD).parent.mkdir(parents=True, exist_ok=True)
    write_whole(folder / RECORD, json.dumps(about, indent=1) + "\n")


def sealed(folder: Path) -> Mapping[str, Any] | None:
    """The record that ``seal`` left, of a whole folder only; None for a skeleton and a folder of other origin."""
    try:
        about = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        whole = about["schema"] == RECORD_SCHEMA and not about["skeleton"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return about if whole and isinstance(about.get("files"), list) else None
