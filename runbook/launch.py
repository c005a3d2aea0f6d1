"""The command that starts a server, planned from the stack: every flag with its reason, from the manifest.

vLLM's own parser judges the plan (check VLLM-005) before anything is started.
"""

import sys
from dataclasses import dataclass

from runbook.pins import STACKS, Stack

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# `vllm serve` looks up the version of a distribution called vllm, which a CPU build does not have.
MODULE = "vllm.entrypoints.openai.api_server"
HOST = "127.0.0.1"
# What clients and checks ask for, whatever is served.
SERVED = "served"


@dataclass(frozen=True)
class Flag:
    """One flag: ``value`` is "" for a switch; ``why`` says what it is for on this stack."""

    flag: str
    value: str
    why: str


@dataclass(frozen=True)
class Variable:
    """One environment variable of the server, and why it is set."""

    name: str
    value: str
    why: str


def flags(stack: Stack) -> tuple[Flag, ...]:
    """The flags of a stack's first serving profile."""
    rows = _manifest(stack).get("serve", [])
    return tuple(Flag(row["flag"], str(row.get("value", "")), row["why"]) for row in rows)


def variables(stack: Stack) -> tuple[Variable, ...]:
    """Environment variables the stack's server needs besides those of every child of the target."""
    rows = _manifest(stack).get("serve_env", [])
    return tuple(Variable(row["name"], str(row["value"]), row["why"]) for row in rows)


def _manifest(stack: Stack) -> dict[str, list[dict[str, str]]]:
    data: dict[str, list[dict[str, str]]] = tomllib.loads(
        (STACKS / stack.name / "manifest.toml").read_text(encoding="utf-8")
    )
    return data


def argv(
    stack: Stack,
    python: str,
    model: str,
    served_name: str,
    port: int | str,
    extra: tuple[Flag, ...] = (),
    *,
    host: str = HOST,
    planned: tuple[Flag, ...] | None = None,
) -> list[str]:
    """The whole command, ``extra`` flags last; the API key travels in the environment, never here.

    ``planned`` are the flags of a profile; None takes the stack's own, which is the profile ``baseline``.
    """
    words = [
        python,
        "-m",
        MODULE,
        "--model",
        model,
        "--served-model-name",
        served_name,
        "--host",
        host,
        "--port",
        str(port),
    ]
    for one in (*(flags(stack) if planned is None else planned), *extra):
        words += [one.flag, one.value] if one.value else [one.flag]
    return words
