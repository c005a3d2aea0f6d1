"""Edited copies for SERVE-011 and SERVE-012: a parser that swallows answers, and an engine that runs without its prefix cache."""

from collections.abc import Callable

from editing import Edited, replaced

from runbook.model import Verdict

PARENT, STACK = "h200-vllm-0.19.1", "vllm-0.19.1-cu128"
BOOT, LOG = "read {work}/jobs/server.boot.json", "read {work}/jobs/server.log"
EXAMINE = "run '{own}/python' -m runbook.checkpoint '{model}'"
LAST = "--gdn-prefill-backend triton"


def started_with(flags: str) -> Callable[[str], str]:
    """The boot record of a command with more flags."""

    def change(text: str) -> str:
        assert LAST in text
        return text.replace(LAST, f"{LAST} {flags}")

    return change


def does_not_think(text: str) -> str:
    """The template of the small sizes: thinking is off unless a request asks for it."""
    assert '"thinking":"on"' in text
    return text.replace('"thinking":"on"', '"thinking":"off"')


MACHINES = [
    Edited(
        "h200-parser-eats-answers",
        PARENT,
        STACK,
        "A model that does not think by default, served behind a reasoning parser that was not told so",
        (
            "server.boot.json and the engine's line: --reasoning-parser qwen3; the template's default is not to think",
        ),
        {
            BOOT: started_with("--reasoning-parser qwen3"),
            LOG: replaced(("reasoning_parser=''", "reasoning_parser='qwen3'")),
            EXAMINE: does_not_think,
        },
        {"SERVE-011": Verdict.FAIL},
    ),
    Edited(
        "h200-no-prefix-cache",
        PARENT,
        STACK,
        "A server that was asked for a prefix cache and runs without one",
        ("server.boot.json: --enable-prefix-caching; the engine's line says False",),
        {BOOT: started_with("--enable-prefix-caching")},
        {"SERVE-012": Verdict.WARN},
    ),
]
