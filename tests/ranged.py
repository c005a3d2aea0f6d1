"""A package index on loopback that hands out parts of its wheels, as the public ones do."""

import hashlib
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Index(ThreadingHTTPServer):
    """Serves the wheels of a folder; ``parts`` False sends whole files only, ``status`` answers wheels with an error."""

    daemon_threads = True

    def __init__(self, folder: Path, *, parts: bool = True, status: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.parts = parts
        self.status = status
        self.sent = 0

    @property
    def address(self) -> str:
        """Where it is."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Index
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""

    def do_HEAD(self) -> None:
        self.send_response(405)  # uv then fetches the wheel itself, to read its metadata
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        word = self.path.strip("/").rpartition("/")[2]
        if word.endswith(".whl"):
            self._wheel((self.server.folder / word).read_bytes())
            return
        found = [path for path in self.server.folder.glob("*.whl") if _project(path) == word]
        rows = (f'<a href="/files/{path.name}#sha256={_digest(path)}">{path.name}</a>' for path in found)
        self._send(200 if found else 404, "".join(rows).encode(), {"Content-Type": "text/html"})

    def _wheel(self, data: bytes) -> None:
        if self.server.status:
            self._send(self.server.status, b"", {})
            return
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if wanted is None or not self.server.parts:
            self._send(200, data, {})
            return
        start = int(wanted[1]) if wanted[1] else max(len(data) - int(wanted[2]), 0)
        end = min(int(wanted[2]), len(data) - 1) if wanted[1] and wanted[2] else len(data) - 1
        self._send(206, data[start : end + 1], {"Content-Range": f"bytes {start}-{end}/{len(data)}"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.server.sent += len(body)
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _project(path: Path) -> str:
    return re.sub(r"[-_.]+", "-", path.name.split("-")[0]).lower()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@contextmanager
def index(folder: Path, *, parts: bool = True, status: int = 0) -> Iterator[Index]:
    """The index, for as long as the block runs."""
    with Index(folder, parts=parts, status=status) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
