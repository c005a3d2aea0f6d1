"""A control group of a test's own with a limit of memory, where this machine lets us make one."""

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from runbook.parse import cgroup, mounts


@contextlib.contextmanager
def limited(mib: int) -> Iterator[list[str] | None]:
    """The words to put before a command so that it runs in a group of at most that much memory; None where none can be made."""
    own, table = (Path("/proc/self", name).read_text(encoding="utf-8") for name in ("cgroup", "mountinfo"))
    found = cgroup.groups(own, mounts.mounts(table), "memory")
    # At the top of the hierarchy: the group that tests run in belongs to whoever made it.
    group = Path(found.folders[-1], f"runbook-test-{os.getpid()}") if found.folders else None
    try:
        if group is not None:
            group.mkdir()
            limit = "memory.limit_in_bytes" if found.version == 1 else "memory.max"
            (group / limit).write_text(str(mib << 20))
    except OSError:
        if group is not None and group.exists():
            group.rmdir()
        group = None
    if group is None:
        yield None
        return
    try:
        yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
    finally:
        deadline = time.monotonic() + 10
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        group.rmdir()
