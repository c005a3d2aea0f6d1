"""Loads made up for tests: a sound one, and what makes it unsound, one thing at a time."""

from typing import Any

from runbook.serving.load import Request, Step, Window


def request(sent: float = 0.0, ttft: float = 0.1, decode: float = 0.3, **more: Any) -> Request:
    return Request(**{"sent": sent, "ttft_s": ttft, "decode_s": decode, "tokens": 16, "chunks": 16, "good": True, **more})  # fmt: skip


def window(number: int, **more: Any) -> Window:
    """The server's counters after ``number`` sound requests."""
    grown = {
        "prompt_tokens": 64.0 * number, "generation_tokens": 16.0 * number,
        "e2e_sum": 0.38 * number, "e2e_count": float(number),
        "decode_sum": 0.29 * number, "decode_count": float(number), **more.pop("grown", {}),
    }  # fmt: skip
    return Window(grown, more.pop("reasons", {"length": float(number)}), **more)


def step(number: int = 40, **more: Any) -> Step:
    """``number`` sound requests within ten seconds."""
    made: dict[str, Any] = {
        "name": "parallel",
        "concurrency": 4,
        "rate": 0.0,
        "seconds": 10.0,
        "requests": tuple(request(10.0 * at / number) for at in range(number)),
        "input_tokens": 64 * number,
        "client_cores": 0.2,
        "server": window(number),
        "waiting": 0.0,
        "running": 4.0,
        "errors": {},
    }
    return Step(**(made | more))


def level(concurrency: int, tps: float, e2e: float) -> Step:
    """A closed load that gives ``tps`` tokens a second, each request taking ``e2e`` seconds."""
    number = round(tps * 10 / 16)
    return step(
        number,
        concurrency=concurrency,
        requests=tuple(request(at * 10 / number, 0.1, e2e - 0.1) for at in range(number)),
    )
