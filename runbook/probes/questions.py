"""One line of text per question, the same in a recording's index, in evidence and in a page's ``look``.

``run nvidia-smi -L`` | ``read /proc/meminfo`` | ``glob /dev/nvidia*`` | ``env CUDA_HOME`` |
``inside torch_facts dtype=bf16`` | ``http GET /health``
"""

import json
import shlex
from typing import Any

from runbook.errors import BadParameter
from runbook.model import Cost
from runbook.probe import Probe

KINDS = ("run", "read", "glob", "env", "inside", "http")


def run(argv: list[str]) -> str:
    """Question text of a command."""
    return "run " + shlex.join(argv)


def inside(script: str, args: dict[str, str] | None) -> str:
    """Question text of a script in the target interpreter."""
    return " ".join(
        ["inside", script, *(f"{key}={shlex.quote(value)}" for key, value in sorted((args or {}).items()))]
    )


def http(method: str, path: str, body: dict[str, Any] | None) -> str:
    """Question text of a request; the body follows as JSON on the same line."""
    return f"http {method} {path}" + (f" {json.dumps(body, sort_keys=True)}" if body is not None else "")


def cost(question: str) -> Cost:
    """What asking costs, by the kind of question."""
    return {"inside": Cost.INSIDE, "http": Cost.LIVE}.get(question.partition(" ")[0], Cost.STATIC)


def ask(host: Probe, question: str) -> str:  # noqa: PLR0911 - one return a kind of question
    """Put one question, written as text, to a host and return its raw answer as text.

    Raises:
        BadParameter: the text is not a question.
    """
    kind, _, rest = question.partition(" ")
    if not rest or kind not in KINDS:
        raise BadParameter(
            f"{question!r} is not a question",
            f"one of {', '.join(KINDS)} and what to ask",
            "see probes/questions.py",
        )
    if kind == "run":
        ran = host.run(shlex.split(rest))
        if ran.missing:
            return f"{ran.argv[0]}: no such program"
        return (ran.out + ran.err).rstrip() + ("" if ran.rc == 0 else f"\n[exit code {ran.rc}]")
    if kind == "read":
        text = host.read_text(rest)
        return f"{rest}: not there" if text is None else text.rstrip()
    if kind == "glob":
        return "\n".join(host.glob(rest)) or f"{rest}: no match"
    if kind == "env":
        value = host.env(rest)
        return f"{rest} is not set" if value is None else f"{rest}={value}"
    if kind == "inside":
        script, *pairs = shlex.split(rest)
        answer = host.inside(script, dict(pair.split("=", 1) for pair in pairs) or None)
        return json.dumps(answer, indent=1, ensure_ascii=False)
    method, path, *body = rest.split(" ", 2)
    reply = host.http(method, path, json.loads(body[0]) if body else None)
    return f"HTTP {reply.status}\n{reply.body}".rstrip()
