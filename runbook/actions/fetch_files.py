"""The child that fetches: ``python -m runbook.actions.fetch_files FOLDER``, a job of ``fetching``, killed at any moment.

FOLDER holds the plan. A file lies in FOLDER under its own name only when its bytes were compared with the hub's hash;
until then it grows under ``PARTS``, where the next run goes on at the byte it stopped at. huggingface_hub moves the
bytes (proxies, redirects, retries); its own download of a repository starts each file anew after a kill
(https://github.com/huggingface/huggingface_hub/pull/4228), which is why its names are not used here.
Prints lines for the log; the last one is a JSON object when it failed.
"""

import hashlib
import json
import os
import shutil
import sys
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from runbook import hub
from runbook.errors import ActionFailed
from runbook.hub import RemoteFile

PLAN = ".cache/runbook/plan.json"
PARTS = ".cache/runbook/parts"
AT_ONCE = 4
TRIES = 5
BLOCK = 1 << 20


def part_of(folder: Path, one: RemoteFile) -> Path:
    """Where a file grows. The name says what it will be, so another revision of it never continues it."""
    key = f"{one.path}\n{one.size}\n{one.sha256 or one.blob or one.commit}"
    return folder / PARTS / hashlib.sha256(key.encode()).hexdigest()[:32]


def differs(path: Path, one: RemoteFile) -> str:
    """How the content differs from what the hub says of it; "" when it is that. Without any hash only the size is compared."""
    size = path.stat().st_size
    if size != one.size:
        return f"{size} bytes instead of {one.size}"
    if not one.sha256 and not one.blob:
        return ""
    # A git blob is hashed with its length before it; git's hash is no choice of ours.
    digest = hashlib.sha256() if one.sha256 else hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)  # fmt: skip
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    have, wanted = digest.hexdigest(), one.sha256 or one.blob
    return "" if have == wanted else f"hash {have[:12]}... instead of {wanted[:12]}..."


def fetch(folder: Path, one: RemoteFile, headers: dict[str, str]) -> None:
    """Put one file into the folder, going on where an earlier run stopped.

    Raises:
        ActionFailed: what came is not what the hub says it is.
        OSError: the hub or the disk failed.
    """
    place, part = folder / one.path, part_of(folder, one)
    if place.exists():
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    if part.exists() and part.stat().st_size >= one.size and differs(part, one):
        part.unlink()
    _grow(part, one, headers)
    if fault := differs(part, one):
        part.unlink()
        raise ActionFailed(
            f"{one.path} came with {fault}",
            "the bytes that the hub's own list names",
            "fetch again: it starts this file anew; if it happens twice, take another mirror",
        )
    part.replace(place)
    print(f"{one.path}: {one.size} bytes, as listed", flush=True)


def _grow(part: Path, one: RemoteFile, headers: dict[str, str]) -> None:
    from huggingface_hub.errors import HfHubHTTPError, HTTPError  # noqa: PLC0415 - half a second
    from huggingface_hub.file_download import http_get  # noqa: PLC0415

    part.parent.mkdir(parents=True, exist_ok=True)
    left = TRIES
    while True:
        have = part.stat().st_size if part.exists() else 0
        if have == one.size and part.exists():
            return
        try:
            with part.open("ab") as file:
                http_get(one.url, file, resume_size=have, headers=headers, expected_size=one.size)
        except HfHubHTTPError:
            raise
        except (HTTPError, OSError) as why:
            # A line that is cut is tried again for as long as it brings something; a full disk is not.
            left = TRIES if part.stat().st_size > have else left - 1
            if getattr(why, "errno", None) or left <= 0:
                raise
        else:
            return


def main() -> int:
    """Fetch what the plan names, several files at a time; the first failure ends all."""
    folder = Path(sys.argv[1])
    about = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    files = [RemoteFile(**each) for each in about["files"]]
    headers = hub.headers(about["source"])
    pool = ThreadPoolExecutor(AT_ONCE)
    jobs = [pool.submit(fetch, folder, one, headers) for one in files]
    done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
    why = next((one.exception() for one in done if one.exception()), None)
    if why is None:
        shutil.rmtree(folder / PARTS, ignore_errors=True)
        return 0
    if not isinstance(why, ActionFailed):
        why = _explained(why, about)
    print(json.dumps({"seen": why.seen, "expected": why.expected, "do": why.do}), flush=True)
    os._exit(1)  # the other threads are in the middle of long reads; what they have is kept


def _explained(why: BaseException, about: dict[str, str]) -> ActionFailed:
    if isinstance(why, OSError) and why.errno:
        return ActionFailed(
            f"{why.strerror} while writing",
            "room for the whole checkpoint",
            "make room or set RUNBOOK_HOME to another disk, then fetch again: what is there is kept",
        )
    return hub.refused(why, about["repo"], about["endpoint"], about["revision"])


if __name__ == "__main__":
    sys.exit(main())
