"""Put a checkpoint into the workspace: generated from a seed, or fetched from the hub. A local folder is used as it is."""

import hashlib
import json
import re
from pathlib import Path

from runbook.actions import Context, Say
from runbook.errors import ActionFailed, BadParameter
from runbook.probes.live import LiveProbe
from runbook.workspace import Workspace

GENERATED = ("tiny-qwen3.5", "tiny-qwen3")
# OWNER/NAME as the hub allows them: neither part begins with a dot or a dash.
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
FETCH_LIMIT_S = 3500.0


def folder_of(ctx: Context) -> Path:
    """Where the checkpoint of a page lies or will lie; raises as ``folder_of_name``."""
    return folder_of_name(ctx.work, ctx.model)


def folder_of_name(work: Workspace, name: str) -> Path:
    """Where a checkpoint of that name lies or will lie.

    Raises:
        BadParameter: the name is neither a generated model, nor a folder with a config.json, nor a hub id.
    """
    if name in GENERATED:
        return work.models / name
    if name.startswith(("/", ".", "~")):
        folder = Path(name).expanduser().resolve()
        if not (folder / "config.json").exists():
            raise BadParameter(
                f"model {name!r}: no config.json in {folder}",
                "the folder of a checkpoint",
                "name the folder that holds config.json",
            )
        return folder
    if HUB_ID.fullmatch(name):
        return work.models / name.replace("/", "--")
    raise BadParameter(
        f"no model {name!r}",
        f"one of {', '.join(GENERATED)}, a folder, or a hub id such as Qwen/Qwen3.5-4B",
        "check the name; sizes are 0.8B, 2B, 4B, 9B, 27B",
    )


class MakeModel:
    """Make the page's checkpoint, and with it the tiny Qwen3.5 that the known limit is shown with."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx
        self.folder = folder_of(ctx)

    def plan(self) -> list[str]:
        """What would be written."""
        if self.ctx.model in GENERATED:
            return [
                f"generate  {kind} from seed 0 into {self.ctx.work.models / kind} (a few MB, about a second)"
                for kind in self._kinds()
            ]
        if self.folder.is_relative_to(self.ctx.work.models):
            return [
                f"fetch     {self.ctx.model} from the hub into {self.folder}",
                "resume    what is there already is kept",
            ]
        return [f"nothing: {self.folder} is used as it is"]

    def _kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.ctx.model, "tiny-qwen3.5")))

    def apply(self, say: Say) -> None:
        """Generate or fetch."""
        self.ctx.work.models.mkdir(parents=True, exist_ok=True)
        probe = LiveProbe(self.ctx.work, self.ctx.stack.name, self.ctx.python)
        if self.ctx.model in GENERATED:
            for kind in self._kinds():
                made = probe.inside("make_model", {"kind": kind, "out": str(self.ctx.work.models / kind)})
                if "error" in made:
                    raise ActionFailed(
                        f"{kind} could not be generated: {made['error']} {made.get('stderr', '')[-300:]}",
                        "a checkpoint",
                        "look at pages 03 and 04 first",
                    )
                say(
                    f"{kind}: {made['parameters']:,} parameters, {'written' if made.get('written') else 'already there'}"
                )
        elif self.folder.is_relative_to(self.ctx.work.models):
            got = probe.inside(
                "fetch_model", {"repo": self.ctx.model, "out": str(self.folder)}, FETCH_LIMIT_S
            )
            if "error" in got:
                raise ActionFailed(
                    f"{self.ctx.model} could not be fetched: {got['error']}",
                    "a hub that can be reached and a repository that may be read",
                    "set HF_ENDPOINT for a mirror, HF_TOKEN for a gated one, or name a local folder: -p model=/path",
                )
            say(f"{self.ctx.model} at revision {got['revision']}")


def checkpoint_hash(folder: Path) -> str:
    """A short hash of what makes a checkpoint: names and sizes of its files, and the bytes of the small ones."""
    small = 1 << 22
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*")):
        if path.is_file():
            size = path.stat().st_size
            digest.update(json.dumps([path.name, size]).encode())
            if size <= small:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
