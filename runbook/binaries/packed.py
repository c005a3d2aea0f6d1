"""Files in a wheel, with a limit on what they may unpack to: a damaged or hostile archive fills no disk."""

import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# Some hundred bytes of a zip file can say that they hold terabytes. Wheels of CUDA libraries unpack to 2 to 5 times their size.
SMALL, RATIO = 1 << 28, 100  # bytes that any wheel may unpack to; times its own size that a large one may
# What zipfile lets through of a damaged file, besides its own errors.
DAMAGE = (
    OSError,
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    ArithmeticError,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)


class BadWheel(Exception):
    """It cannot be read as a wheel; the text says why."""


@contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """The wheel at a path; whatever is wrong with it while it is open ends as ``BadWheel``.

    Raises:
        BadWheel: there is no such file, it is none, or it is damaged.
    """
    try:
        kind = os.stat(path).st_mode
        if not stat.S_ISREG(kind):
            raise BadWheel("it is a folder" if stat.S_ISDIR(kind) else "it is no plain file")
        if path.suffix != ".whl":
            raise BadWheel("its name does not end in .whl")
        with zipfile.ZipFile(path) as wheel:
            yield wheel
    except FileNotFoundError as why:
        raise BadWheel("there is no such file") from why
    except DAMAGE as why:
        said = why.strerror if isinstance(why, OSError) else str(why)
        raise BadWheel((said or type(why).__name__)[:1].lower() + (said or type(why).__name__)[1:]) from why


def members(wheel: zipfile.ZipFile, wanted: Callable[[str], bool]) -> list[zipfile.ZipInfo]:
    """The files of interest by name.

    Raises:
        BadWheel: one would be written elsewhere, or together they unpack to more than a real wheel does.
    """
    found = [one for one in wheel.infolist() if not one.is_dir() and wanted(one.filename)]
    for one in found:
        if one.filename.startswith("/") or ".." in one.filename.split("/"):
            raise BadWheel(f"{one.filename!r} in it would be written outside site-packages")
    size, own = sum(one.file_size for one in found), os.stat(str(wheel.filename)).st_size
    if size > max(SMALL, RATIO * own):
        raise BadWheel(f"its {own} bytes would unpack to {size}, which no real wheel does")
    return found
