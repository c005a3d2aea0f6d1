"""This machine, with some files as they are told rather than as they lie on disk: for what was measured on a server elsewhere."""

from collections.abc import Mapping
from pathlib import Path

from runbook.probes.live import LiveProbe
from runbook.workspace import Workspace


class ToldProbe(LiveProbe):
    """``texts`` holds path, as checks ask for it, -> text."""

    def __init__(self, work: Workspace, stack: str, target: Path | None, texts: Mapping[str, str]) -> None:
        super().__init__(work, stack, target)
        self.texts = texts

    def read_text(self, path: str) -> str | None:
        """The text that was told, else what lies there."""
        return self.texts[path] if path in self.texts else super().read_text(path)
