"""A package index on loopback with wheels made on the spot, which can be slow, cut off or gone: what uv really meets."""

import hashlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def row(path: Path) -> str:
    """The wheel's row in a lock."""
    name, version, *_ = path.name.split("-")
    return f"{name}=={version} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


class Shelf:
    """The index. ``stop_at`` bytes of a wheel are sent before it waits for ``go``; then it goes on, or cuts if ``cut``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stop_at: int | None = None
        self.cut = False
        self.go = threading.Event()
        self.reached = threading.Event()
        shelf = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

            def do_GET(self) -> None:
                shelf.answer(self)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server.server_address[1]}/simple"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """A project's page, or a wheel."""
        word = request.path.strip("/").rpartition("/")[2]
        path = self.folder / word
        if word.endswith(".whl") and path.exists():
            self.send(request, path.read_bytes())
            return
        found = [
            each for each in self.folder.glob("*.whl") if each.name.startswith(f"{word.replace('-', '_')}-")
        ]
        page = "".join(f'<a href="/files/{each.name}">{each.name}</a>' for each in found).encode()
        request.send_response(200 if found else 404)
        request.send_header("Content-Type", "text/html")
        request.send_header("Content-Length", str(len(page)))
        request.end_headers()
        request.wfile.write(page)

    def send(self, request: BaseHTTPRequestHandler, data: bytes) -> None:
        """The bytes, as slowly or as few as the test wants."""
        request.send_response(200)
        request.send_header("Content-Type", "application/octet-stream")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        stop = len(data) if self.stop_at is None else min(self.stop_at, len(data))
        try:
            request.wfile.write(data[:stop])
            request.wfile.flush()
            if stop == len(data):
                return
            self.reached.set()
            if self.cut:
                request.connection.shutdown(socket.SHUT_RDWR)
                request.close_connection = True
                return
            self.go.wait(60)
            request.wfile.write(data[stop:])
        except OSError:
            request.close_connection = True  # the client was killed


@contextmanager
def shelf(folder: Path) -> Iterator[Shelf]:
    """Serve a folder of wheels."""
    one = Shelf(folder)
    thread = threading.Thread(target=one.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield one
    finally:
        one.go.set()
        one.server.shutdown()
        one.server.server_close()
        thread.join(10)
