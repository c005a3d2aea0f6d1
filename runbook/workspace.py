"""The one folder the runbook writes to, and what lies where in it.

``$RUNBOOK_HOME``, else ``vllm-qwen-runbook`` under ``$XDG_DATA_HOME`` (default ``~/.local/share``)::

    targets/<stack>/      builds of a target environment, each a venv in a folder of its own, and `current`, a link to one
    models/<name>/        a checkpoint
    jobs/                 state files of background processes
    logs/                 their logs, and those of builds
    caches/<stack>/       compile caches the server reads (torch.compile, inductor, Triton)
    runs/<time>/          run folders
    builds/               folders of compiles under way
    skeletons/<name>/     what a repository of the hub looks like, without its weights
    boots.jsonl           the boot ledger: a row for each start of a server
    wheels/flash-attn/    wheels compiled here, one folder for what each is for
"""

import os
from dataclasses import dataclass
from pathlib import Path

from runbook.errors import BadParameter

DISTRIBUTION = "vllm-qwen-runbook"
CURRENT = "current"


@dataclass(frozen=True)
class Workspace:
    """Paths below the workspace folder; nothing is created until it is needed."""

    root: Path

    @property
    def targets(self) -> Path:
        """Target environments, one folder a stack with one folder a build in it."""
        return self.root / "targets"

    def target(self, stack: str) -> Path:
        """The current build of a stack, under its own name: a process started from it keeps its files after a switch.

        Where there is none this is ``targets/<stack>/current``, which does not exist.
        """
        link = self.targets / stack / CURRENT
        try:
            return link.with_name(str(link.readlink()))
        except OSError:
            return link

    @property
    def models(self) -> Path:
        """Checkpoints, one folder a model."""
        return self.root / "models"

    @property
    def skeletons(self) -> Path:
        """Repositories examined on the hub: small files and headers only."""
        return self.root / "skeletons"

    @property
    def jobs(self) -> Path:
        """State files of background processes."""
        return self.root / "jobs"

    @property
    def logs(self) -> Path:
        """Logs of background processes and builds."""
        return self.root / "logs"

    @property
    def runs(self) -> Path:
        """Run folders, one a walk, named by local time."""
        return self.root / "runs"

    def caches(self, stack: str) -> Path:
        """Compile caches of one stack; kept between starts so that a second start compiles nothing."""
        return self.root / "caches" / (stack or "any")

    def target_python(self, stack: str) -> Path:
        """Interpreter of the current build of ``stack`` (it may not exist yet)."""
        return self.target(stack) / "bin" / "python"


def above(path: Path) -> Path:
    """The path itself, or the nearest folder over it that is there: its disk is where the path would lie."""
    return next(each for each in (path, *path.parents) if each.exists())


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader, or a kill, finds the old text or the new one and never a part."""
    partial = path.with_name(f"{path.name}.part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def workspace(environ: dict[str, str] | None = None) -> Workspace:
    """The workspace in force.

    Raises:
        BadParameter: the folder's place is not an absolute path, or no home folder is known.
    """
    env = dict(os.environ) if environ is None else environ
    named = env.get("RUNBOOK_HOME", "")
    if named:
        root = Path(named)
        if not root.is_absolute():
            raise BadParameter(
                f"RUNBOOK_HOME={named!r} is not an absolute path",
                "an absolute folder, since notebooks and jobs run in different working folders",
                "export RUNBOOK_HOME=$PWD/work",
            )
        return Workspace(root)
    data = env.get("XDG_DATA_HOME", "")
    if data and Path(data).is_absolute():
        return Workspace(Path(data) / DISTRIBUTION)
    home = env.get("HOME", "")
    if not home:
        raise BadParameter(
            "neither RUNBOOK_HOME nor HOME is set", "a folder to work in", "export RUNBOOK_HOME=/some/folder"
        )
    return Workspace(Path(home) / ".local" / "share" / DISTRIBUTION)
