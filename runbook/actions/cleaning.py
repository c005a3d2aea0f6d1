"""Find and remove what the runbook left in its workspace: caches, old runs, targets."""

import shutil
from pathlib import Path

from runbook import pins
from runbook.actions.jobs import Jobs
from runbook.errors import BadParameter
from runbook.workspace import Workspace

OURS = (
    "targets",
    "models",
    "jobs",
    "logs",
    "caches",
    "runs",
    "notebooks",
    "builds",
    "wheels",
    "skeletons",
    "walk.lock",
    "boots.jsonl",
)


def leftovers(work: Workspace, target: str, *, everything: bool) -> list[tuple[Path, int]]:
    """(folder, MiB) of what would be removed: one stack's target and caches, everything, or caches, runs and skeletons.

    Raises:
        BadParameter: there is no stack of that name.
    """
    if everything:
        # By name: a workspace may be a folder that holds other things too.
        folders = [work.root / name for name in OURS]
    elif target:
        folders = [work.targets / pins.stack(target).name, work.caches(target)]
    else:
        folders = [*work.root.glob("caches/*"), *work.runs.glob("*"), *work.skeletons.glob("*")]
    return [
        (folder, _size_mib(folder)) for folder in sorted(folders) if folder.exists() or folder.is_symlink()
    ]


def _size_mib(folder: Path) -> int:
    # What the disk gives back: a skeleton's weights are mostly holes.
    return sum(path.lstat().st_blocks for path in folder.rglob("*") if not path.is_dir()) * 512 >> 20


def remove(work: Workspace, folders: list[Path], *, stop: bool = True) -> None:
    """Stop what runs, unless nothing running can use them, then remove the folders.

    Raises:
        BadParameter: a folder is not in the workspace (our own bug, refused all the same).
    """
    for folder in folders:
        if not folder.is_relative_to(work.root):
            raise BadParameter(f"{folder} is not in the workspace {work.root}", "a folder of ours")
    if stop:
        Jobs(work.jobs).stop_all()
    for folder in folders:
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)
        else:
            folder.unlink()
    if work.root.exists() and not any(work.root.iterdir()):
        work.root.rmdir()
