"""SERVE: does what a server was started with fit the model, and does the engine run with it?"""

import json
import shlex
from typing import Any

from runbook import tables
from runbook.checks.model_readings import CONFIG, EXAMINE, config_json, examined
from runbook.checks.readings import stack_of
from runbook.checks.vllm import shipped
from runbook.checks.warm import BOOT, LOG, boot
from runbook.model import (
    Answer,
    Cost,
    Evidence,
    Fix,
    Layer,
    Risk,
    Source,
    check,
    fail,
    ok,
    unknown,
    warn,
)
from runbook.parse import engine_config, vllm_flags
from runbook.probe import Probe

PARSER, DEFAULTS = "--reasoning-parser", "--default-chat-template-kwargs"
AGAIN = Fix("Start it with the flags that runbook serve plans", ("runbook serve --plan",), Risk.RESTART)
# Options whose value stands in the engine's own line, and the name it has there.
LOGGED = {
    "--max-model-len": "max_seq_len",
    "--dtype": "dtype",
    "--kv-cache-dtype": "kv_cache_dtype",
    "--quantization": "quantization",
    "--load-format": "load_format",
    "--tensor-parallel-size": "tensor_parallel_size",
    "--pipeline-parallel-size": "pipeline_parallel_size",
    "--seed": "seed",
    PARSER: "reasoning_parser",
}
SWITCHES = {"--enforce-eager": "enforce_eager", "--enable-prefix-caching": "enable_prefix_caching", "--enable-chunked-prefill": "enable_chunked_prefill"}  # fmt: skip
ARGUMENTS = Source(
    "vLLM: engine arguments", "https://docs.vllm.ai/en/stable/configuration/engine_args/", "2026-11-30"
)
SHORT = {"half": "float16", "float": "float32"}


@check(
    "SERVE-011",
    layer=Layer.SERVE,
    title="The reasoning parser fits how this model thinks",
    why="A parser before a model that does not think by default takes the whole answer for thinking: content is null, and the request succeeded.",
    source=Source(
        "measured on both CPU stacks: content and reasoning by template, parser and request",
        "docs/serving.md",
        "2026-11-30",
    ),
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-001",),
)
def parser(host: Probe) -> Answer:
    """--reasoning-parser and the template's default of the running server, against what the template does by itself."""
    flags = running(host)
    if isinstance(flags, Answer):
        return flags
    named = flags.get(PARSER, "")
    default = _object(flags.get(DEFAULTS, "")).get("enable_thinking")
    seen = [
        Evidence(PARSER, named or "none", f"read {BOOT}"),
        Evidence("enable_thinking by default", default if isinstance(default, bool) else "not set", f"read {BOOT}"),
    ]  # fmt: skip
    if not named:
        return ok(*seen)
    facts = examined(host)
    if isinstance(facts, Answer):
        return facts
    thinking = str(facts.value("template", "thinking") or "")
    kind = str((config_json(host) or {}).get("model_type", ""))
    row = next((row for row in tables.rows("parsers") if kind in row["model_types"]), None)
    seen += [
        Evidence("template thinks by default", thinking or "not read", EXAMINE),
        Evidence("parser of the family", row["reasoning"] if row else "none on record", f"read {CONFIG}"),
    ]
    return _fits(named, thinking, default, kind, row, seen)


def _fits(
    named: str, thinking: str, default: object, kind: str, row: dict[str, Any] | None, seen: list[Evidence]
) -> Answer:
    if not thinking:
        return unknown("what the chat template does by default could not be read", *seen)
    if thinking == "off" and default is None:
        fix = Fix(
            "Add --default-chat-template-kwargs '{\"enable_thinking\": false}', or leave the parser out",
            risk=Risk.RESTART,
        )
        return fail(*seen, fix=fix, reason="P01: the template does not think, the parser believes it does")
    if thinking not in ("on", "off"):
        why = "the template has no switch for thinking: what comes without </think> counts as thinking"
        return warn(*seen, fix=AGAIN, reason=why)
    if row is not None and row["reasoning"] != named:
        return warn(*seen, fix=AGAIN, reason=f"models of type {kind} are split by {row['reasoning']}")
    return ok(*seen)


@check(
    "SERVE-012",
    layer=Layer.SERVE,
    title="The engine runs with what was asked of it",
    why="vLLM changes what does not suit it and goes on: another context length, no prefix cache, another type. Every figure is then of another server.",
    source=ARGUMENTS,
    cost=Cost.LIVE,
    needs_target=True,
    requires=("WARM-001",),
)
def as_asked(host: Probe) -> Answer:
    """The flags of the command against the engine's own line in the log."""
    flags = running(host)
    if isinstance(flags, Answer):
        return flags
    found = engine_config.config(host.read_text(LOG) or "")
    if not found:
        return unknown("the log has no line of the engine's configuration", Evidence("log", "no such line", f"read {LOG}"))  # fmt: skip
    asked = _asked(flags)
    apart = {name: (want, found[name]) for name, want in asked.items() if name in found and found[name] != want}  # fmt: skip
    device, wanted = found.get("device_config", ""), stack_of(host).device
    seen = [
        Evidence("asked for, and in its line", sum(name in found for name in asked), f"read {BOOT}"),
        Evidence("computes on", device or "not said", f"read {LOG}"),
        *(Evidence(name, found.get(name, "not said"), f"read {LOG}") for name in ("max_seq_len", "dtype", *SWITCHES.values())),
    ]  # fmt: skip
    if device and device != wanted:
        return fail(*seen, fix=AGAIN, reason=f"it computes on {device}, the stack is for {wanted}")
    if apart:
        seen += [Evidence(f"{name} asked for", want, f"read {BOOT}") for name, (want, _) in apart.items()]
        name, (want, have) = next(iter(apart.items()))
        return warn(*seen, reason=f"{name} is {have}, {want} was asked for; the log above that line says why")
    return ok(*seen)


def running(host: Probe) -> dict[str, str] | Answer:
    """Options of the running server's command by their full names, as its release reads them."""
    known = shipped(stack_of(host))
    try:
        words = shlex.split(str((boot(host) or {})["command"]))
    except (KeyError, ValueError):
        return unknown("the boot record names no command", Evidence("command", "none", f"read {BOOT}"))
    asked = vllm_flags.command(words)
    if known is None or asked is None:
        return unknown("the command of the boot record cannot be read", Evidence("command", shlex.join(words)[:80], f"read {BOOT}"))  # fmt: skip
    found: dict[str, str] = {}
    by_name = {name: one for one in known.options for name in one.names}
    for one in vllm_flags.judge(asked, known.options, tables.vllm_flags()):
        option = by_name.get(one.option)
        counted = option is not None and option.takes.startswith("count")
        found[one.option] = str(vllm_flags.number(option, one.value)) if option is not None and counted else one.value  # fmt: skip
    return found


def _asked(flags: dict[str, str]) -> dict[str, str]:
    """What the engine's line should say: name there -> value. ``auto`` asks for nothing."""
    found = {LOGGED[name]: value for name, value in flags.items() if name in LOGGED and value != "auto"}
    if "dtype" in found:
        found["dtype"] = f"torch.{SHORT.get(found['dtype'], found['dtype'])}"
    for name, logged in SWITCHES.items():
        if name in flags:
            found[logged] = "True"
        elif f"--no-{name[2:]}" in flags:
            found[logged] = "False"
    return found


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


CHECKS = (parser, as_asked)
