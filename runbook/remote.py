"""Looking into a wheel where it lies, without fetching it: its list of files and its metadata, by parts of the file.

A wheel is a zip archive, whose list of files stands at its end; index servers hand out parts of files (RFC 9110, 14.1).
"""

import contextlib
import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx

from runbook.errors import ActionFailed

TAIL = 1 << 16
TIMEOUT_S = 60.0


class _Parts(io.RawIOBase):
    """A file on a server, read by ranges. The end is fetched at once: most lists of files lie in it whole."""

    def __init__(self, client: httpx.Client, address: str) -> None:
        super().__init__()
        self.client = client
        self.address = address
        self.at = 0
        self.tail, self.size = self._part(f"bytes=-{TAIL}")

    def _part(self, wanted: str) -> tuple[bytes, int]:
        answer = self.client.get(self.address, headers={"Range": wanted, "Accept-Encoding": "identity"})
        total = re.match(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("content-range", ""))
        if answer.status_code == httpx.codes.PARTIAL_CONTENT and total:
            return answer.content, int(total[2])
        if answer.status_code == httpx.codes.OK:
            return answer.content, len(answer.content)  # a server without ranges sends the whole file
        raise OSError(f"the index answers {answer.status_code}")

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def tell(self) -> int:
        return self.at

    def read(self, size: int = -1) -> bytes:
        end = self.size if size < 0 else min(self.at + size, self.size)
        start, first = self.at, self.size - len(self.tail)
        if end <= start:
            return b""
        self.at = end
        if start >= first:
            return self.tail[start - first : end - first]
        return self._part(f"bytes={start}-{end - 1}")[0]


@contextlib.contextmanager
def opened() -> Iterator["Wheels"]:
    """Connections to look into many wheels with."""
    with httpx.Client(follow_redirects=True, timeout=TIMEOUT_S) as client:
        yield Wheels(client)


class Wheels:
    """Wheels looked into over one client; threads may share it."""

    def __init__(self, client: httpx.Client) -> None:
        self.client = client

    def files(self, place: str) -> list[zipfile.ZipInfo]:
        """The files in a wheel, folders left out; ``place`` is an address or a path.

        Raises:
            ActionFailed: it cannot be read, or is no archive.
        """
        with self._opened(place) as archive:
            return [each for each in archive.infolist() if not each.is_dir()]

    def metadata(self, place: str) -> str:
        """The METADATA of a wheel.

        Raises:
            ActionFailed: it cannot be read, or is no wheel.
        """
        with self._opened(place) as archive:
            name = next(
                (each for each in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each)),
                None,
            )
            if name is None:
                raise ActionFailed(
                    "a wheel has no METADATA", "the form of PEP 427", "ask whoever keeps the index"
                )
            return archive.read(name).decode("utf-8", "replace")

    def _opened(self, place: str) -> zipfile.ZipFile:
        try:
            if "://" not in place:
                return zipfile.ZipFile(Path(place))
            return zipfile.ZipFile(_Parts(self.client, place))
        except (OSError, zipfile.BadZipFile, httpx.HTTPError) as why:
            raise ActionFailed(
                f"a wheel could not be looked into ({type(why).__name__}: {str(why).partition(' for url')[0]})",
                "an index that hands out files",
                "check the index, proxy and mirror settings, then run it again",
            ) from why
