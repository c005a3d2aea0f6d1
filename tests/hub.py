"""Two hubs on loopback, over real sockets: Hugging Face's protocol as its own client speaks it, and ModelScope's.

A repository is a folder. Faults are attributes: a token that is wanted, a gate, files that are cut, slow or other than
the list says. ``log`` holds what was asked and how many bytes of it were sent.
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "1a2b3c4d" * 5
CHUNK = 1 << 14
LARGE = (".safetensors", ".bin", "tokenizer.json")  # what the hub keeps apart from git


@dataclass
class Asked:
    """One request: ``sent`` counts bytes of the file itself."""

    method: str
    path: str
    range: str
    token: str
    sent: int = 0


@dataclass
class Faults:
    """What is wrong with this hub. ``cut`` and ``lies`` go by the name of a file; a cut happens so many times."""

    gated: bool = False
    private: bool = False
    token: str = ""
    ranges: bool = True
    busy: bool = False
    sizes: bool = True
    cut: dict[str, tuple[int, int]] = field(default_factory=dict)
    lies: dict[str, bytes] = field(default_factory=dict)
    gate: threading.Event | None = None  # files wait for it once so many bytes of them are out
    gate_at: int = 0
    extra: tuple[str, ...] = ()


class Hub(ThreadingHTTPServer):
    """Serves the folders of ``repos`` by their names."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, repos: dict[str, Path]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos = repos
        self.faults = Faults()
        self.log: list[Asked] = []
        self.commit = COMMIT

    @property
    def address(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def sent(self, name: str) -> int:
        """Bytes of one file that went out so far."""
        return sum(one.sent for one in self.log if one.path.endswith(f"/{name}"))

    def handle_error(self, *_: object) -> None:
        """A client that went away is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """The list is enough."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        query = {name: values[-1] for name, values in parse_qs(urlsplit(self.path).query).items()}
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.asked = Asked(self.command, path, self.headers.get("Range", ""), token)
        self.server.log.append(self.asked)
        if self.server.faults.busy:
            self._send(503, b"busy")
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/]+)", path):
            self._hf_list(*found.groups())
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._hf_file(*found.groups())
        elif found := re.fullmatch(r"/kept/([^/]+/[^/]+)/(.+)", path):
            self._bytes(self.server.repos[found[1]] / found[2], {})
        elif found := re.fullmatch(r"/api/v1/models/([^/]+/[^/]+)/repo(/files)?", path):
            self._modelscope(found[1], query, listed=bool(found[2]))
        else:
            self._send(404, b"")

    def _refusal(self, repo: str, revision: str) -> tuple[int, str] | None:
        faults = self.server.faults
        if faults.token and self.asked.token not in ("", faults.token):
            return 401, ""
        if repo not in self.server.repos or (faults.private and self.asked.token != faults.token):
            return 401, "RepoNotFound"
        if revision not in ("main", self.server.commit):
            return 404, "RevisionNotFound"
        return None

    def _hf_list(self, repo: str, kind: str, revision: str) -> None:
        if refusal := self._refusal(repo, revision):
            self._refuse(*refusal)
            return
        rows = [self._row(path, self.server.repos[repo]) for path in _files(self.server.repos[repo])]
        rows += [{"rfilename": name, "size": 1, "blobId": "0" * 40} for name in self.server.faults.extra]
        if kind == "tree":
            tree = [{"type": "file", "path": row["rfilename"], "size": row["size"], "oid": row["blobId"], **({"lfs": {**row["lfs"], "oid": row["lfs"]["sha256"]}} if "lfs" in row else {})} for row in rows]  # fmt: skip
            self._send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"})
            return
        if not self.server.faults.sizes:
            rows = [{"rfilename": row["rfilename"]} for row in rows]
        about = {"id": repo, "modelId": repo, "sha": self.server.commit, "private": False, "gated": "auto" if self.server.faults.gated else False, "siblings": rows, "tags": [], "downloads": 0, "likes": 0}  # fmt: skip
        self._send(200, json.dumps(about).encode(), {"Content-Type": "application/json"})

    def _row(self, path: Path, root: Path) -> dict[str, Any]:
        data = path.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()  # noqa: S324 - git's own
        row: dict[str, Any] = {"rfilename": str(path.relative_to(root)), "size": len(data), "blobId": blob}
        if path.name.endswith(LARGE):
            row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
        return row

    def _hf_file(self, repo: str, revision: str, name: str) -> None:
        refusal = self._refusal(repo, revision)
        if not refusal and self.server.faults.gated and self.asked.token != self.server.faults.token:
            refusal = (403, "GatedRepo")
        path = self.server.repos.get(repo, Path("/nowhere")) / name
        if not refusal and not path.is_file():
            refusal = (404, "EntryNotFound")
        if refusal:
            self._refuse(*refusal)
            return
        row = self._row(path, self.server.repos[repo])
        about = {"X-Repo-Commit": self.server.commit, "ETag": f'"{row["blobId"]}"'}
        if "lfs" in row:
            about |= {"X-Linked-Etag": f'"{row["lfs"]["sha256"]}"', "X-Linked-Size": str(row["size"])}
            self._send(302, b"", {**about, "Location": f"{self.server.address}/kept/{repo}/{name}"})
        else:
            self._bytes(path, about)

    def _modelscope(self, repo: str, query: dict[str, str], *, listed: bool) -> None:
        root = self.server.repos.get(repo)
        if root is None or query.get("Revision") != "master":
            self._send(404, b'{"Code": 10010205001, "Message": "not found", "Success": false}', {"Content-Type": "application/json"})  # fmt: skip
        elif listed:
            rows = [
                {"Name": path.name, "Path": str(path.relative_to(root)), "Size": path.stat().st_size, "Type": "blob", "Revision": self.server.commit, "Sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
                for path in _files(root)
            ]  # fmt: skip
            rows += [{"Name": path.name, "Path": str(path.relative_to(root)), "Size": 0, "Type": "tree", "Revision": self.server.commit, "Sha256": ""} for path in sorted(root.rglob("*")) if path.is_dir()]  # fmt: skip
            body = {"Code": 200, "Success": True, "Message": "success", "Data": {"Files": rows}}
            self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})
        else:
            self.asked.path = f"{self.asked.path}/{query['FilePath']}"
            self._bytes(root / query["FilePath"], {})

    def _bytes(self, path: Path, about: dict[str, str]) -> None:
        data = path.read_bytes()
        faults = self.server.faults
        if path.name in faults.lies:
            data = faults.lies[path.name] + data[len(faults.lies[path.name]) :]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.asked.range) if faults.ranges else None
        start = int(wanted[1]) if wanted else 0
        end = min(int(wanted[2]), len(data) - 1) + 1 if wanted and wanted[2] else len(data)
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{end - 1}/{len(data)}")
        for name, value in {**about, "Content-Length": str(end - start), "Accept-Ranges": "bytes"}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        limit, times = faults.cut.get(path.name, (end, 0))
        if times:
            faults.cut[path.name] = (limit, times - 1)
        for at in range(start, end, CHUNK):
            if times and at >= limit:
                self.close_connection = True
                self.connection.close()
                return
            piece = data[at : min(at + CHUNK, end)]
            self.wfile.write(piece)
            self.asked.sent += len(piece)
            if faults.gate and at + len(piece) >= faults.gate_at:
                faults.gate.wait(60)

    def _refuse(self, status: int, code: str) -> None:
        about = {"X-Error-Code": code} if code else {"X-Error-Message": "Invalid credentials in Authorization header"}  # fmt: skip
        self._send(status, b'{"error": "refused"}', {**about, "Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


@contextmanager
def hub(repos: dict[str, Path]) -> Iterator[Hub]:
    """The hub, for as long as the block runs."""
    with Hub(repos) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
