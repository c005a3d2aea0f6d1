"""Put a checkpoint into the workspace: generated from a seed, or fetched from the hub. A local folder is used as it is."""

import hashlib
import json
from pathlib import Path

from runbook import catalogue, hub
from runbook.actions import Context, Say
from runbook.actions.fetching import Fetch, place
from runbook.errors import ActionFailed, BadParameter
from runbook.probes.live import LiveProbe
from runbook.workspace import Workspace

GENERATED = ("tiny-qwen3.5", "tiny-qwen3")


def folder_of(ctx: Context) -> Path:
    """Where the checkpoint of a page lies or will lie; raises as ``folder_of_name``."""
    return folder_of_name(ctx.work, ctx.model)


def folder_of_name(work: Workspace, name: str) -> Path:
    """Where a checkpoint of that name lies or will lie.

    Raises:
        BadParameter: the name is neither a generated model, nor a folder with a config.json, nor a hub id; or it is a name
            of the Qwen3.5 family that leads nowhere.
    """
    if name in GENERATED:
        return work.models / name
    if name.startswith(("/", ".", "~")):
        folder = Path(name).expanduser().resolve()
        # An adapter alone is let through: MODEL-016 says what it is.
        if not any((folder / each).exists() for each in ("config.json", "adapter_config.json")):
            raise BadParameter(
                f"model {name!r}: no config.json in {folder}",
                "the folder of a checkpoint",
                "name the folder that holds config.json",
            )
        return folder
    catalogue.demanded(name)
    if catalogue.HUB_ID.fullmatch(name):
        return place(work, name)
    raise BadParameter(
        f"no model {name!r}",
        f"one of {', '.join(GENERATED)}, a folder, or a hub id such as Qwen/Qwen3.5-4B",
        "check the name; runbook model lists the family",
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
            about = hub.sealed(self.folder)
            if about is not None:
                return [f"nothing: {self.folder} holds it, {about['commit'] or about['revision']}, whole"]
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
            # What was fetched whole is used as it is: a walk is not to change its model, nor to need the hub again.
            if hub.sealed(self.folder) is None:
                Fetch(self.ctx.work, self.ctx.model, owner=self.ctx.owner).apply(say)
            say(f"{self.ctx.model} lies in {self.folder}")


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
