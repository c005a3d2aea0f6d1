"""Texts that clients really got from vLLM 0.19.1 and 0.32.0, and the fault each is."""

from dataclasses import dataclass

import pytest

from runbook.errors import ActionFailed
from runbook.serving import faults
from runbook.serving.faults import Known, count, named


@dataclass(frozen=True)
class Reply:
    status: int
    error: str


TOO_LONG = (
    "BadRequestError: This model's maximum context length is 2048 tokens. However, you requested 4 output tokens and "
    "your prompt contains at least 2045 input tokens, for a total of at least 2049 tokens. Please reduce the length of "
    "the input prompt or the number of requested output tokens. (parameter=input_tokens, value=2045)"
)
TOO_MANY = (
    "BadRequestError: max_tokens=99999cannot be greater than max_model_len=max_total_tokens=2048. Please request fewer "
    "output tokens. (parameter=max_tokens, value=99999)"
)
NO_SUCH = "NotFoundError: The model `nope` does not exist."
DEAD = "APIError: EngineCore encountered an issue. See stack trace (above) for the root cause."
REFUSED = "APIConnectionError: Connection error. (ConnectError: [Errno 111] Connection refused)"
RESET = "APIConnectionError: Connection error. (ReadError: [Errno 104] Connection reset by peer)"
HALF = "RemoteProtocolError: peer closed connection without sending complete message body (incomplete chunked read)"
SAID = [
    (404, NO_SUCH, Known("nope", ("served",)), faults.WRONG_MODEL, "one of: served"),
    (404, NO_SUCH, Known("nope"), faults.WRONG_MODEL, "GET /v1/models"),
    (404, "NotFoundError: Error code: 404", Known("served", ("served",)), faults.NOT_SERVED, "OpenAI-compatible path"),
    (404, "NotFoundError: Error code: 404", Known("x", ("served",)), faults.WRONG_MODEL, "one of: served"),
    (401, "AuthenticationError: Error code: 401", Known(keyed=False), faults.NO_KEY, "the key"),
    (401, "AuthenticationError: Error code: 401", Known(), faults.WRONG_KEY, "the key"),
    (400, TOO_LONG, Known(), faults.CONTEXT, "context of 2048 tokens"),
    (400, TOO_MANY, Known(), faults.CONTEXT, "context of 2048 tokens"),
    (400, "BadRequestError: max_tokens=99999 cannot be greater than max_model_len=2048. Please request fewer output tokens. (parameter=max_tokens, value=99999)", Known(), faults.CONTEXT, "context of 2048 tokens"),
    (404, "NotFoundError: The model `nope` does not exist. Valid aliases: served.", Known("nope", ("served",)), faults.WRONG_MODEL, "one of: served"),
    (400, "BadRequestError: maximum context length", Known(max_model_len=512), faults.CONTEXT, "context of 512 tokens"),
    (400, "BadRequestError: temperature must be non-negative, got -3.0.", Known(), faults.BAD_REQUEST, "a request"),
    (429, "RateLimitError: Error code: 429", Known(), faults.OVERLOADED, "room"),
    (503, "InternalServerError: Error code: 503", Known(), faults.OVERLOADED, "room"),
    (500, "InternalServerError: EngineCore encountered an issue.", Known(), faults.DIED, "an engine that stays up"),
    (503, "InternalServerError: EngineCore encountered an issue.", Known(), faults.DIED, "an engine that stays up"),
    (500, "InternalServerError: Error code: 500", Known(), faults.BROKEN, "an answer"),
    (0, DEAD, Known(), faults.DIED, "an engine that stays up"),
    (0, REFUSED, Known(), faults.REFUSED, "a server on that address"),
    (0, RESET, Known(), faults.CUT, "a whole answer"),
    (0, HALF, Known(), faults.CUT, "a whole answer"),
    (0, "APITimeoutError: Request timed out.", Known(), faults.TIMEOUT, "before the deadline"),
    (0, REFUSED, Known(end="exited (SIGKILL) after 9.0 s"), faults.DIED, "stays up"),
    (0, HALF, Known(end="exited (SIGKILL) after 9.0 s"), faults.DIED, "stays up"),
    (0, "APITimeoutError: Request timed out.", Known(end="", standstill="stopped by a signal"), faults.STUCK, "progress"),
    (0, REFUSED, Known(end=""), faults.REFUSED, "a server on that address"),
]  # fmt: skip


@pytest.mark.parametrize(("status", "error", "known", "name", "expected"), SAID)
def test_the_fault_of_a_reply(status: int, error: str, known: Known, name: str, expected: str) -> None:
    found = named(Reply(status, error), known)
    assert found is not None
    assert found.name == name
    assert found.name in faults.NAMES
    assert expected in found.expected
    assert found.do
    assert found.text().startswith(f"{name}: ")
    told = found.failed()
    assert isinstance(told, ActionFailed)
    assert (told.seen, told.exit_code) == (found.text(), 1)


def test_every_name_is_given_once_at_least() -> None:
    assert {name for *_, name, _ in SAID} == set(faults.NAMES)


def test_an_answer_has_no_fault() -> None:
    assert named(Reply(200, "")) is None
    assert named(Reply(200, ""), Known(end="exited")) is None


def test_the_end_of_the_server_is_told_with_what_the_client_saw() -> None:
    found = named(Reply(0, HALF), Known(end="exited (SIGKILL) after 9.0 s"))
    assert found is not None
    assert "exited (SIGKILL) after 9.0 s; the client saw RemoteProtocolError: peer closed" in found.seen


def test_long_words_are_cut_and_stay_on_one_line() -> None:
    found = named(Reply(400, "BadRequestError: a\nb " + "x" * 5000))
    assert found is not None
    assert len(found.seen) < 260
    assert "\n" not in found.seen


def test_counts_are_told_by_frequency() -> None:
    assert count({"key wrong": 1, "overloaded": 3, "context overflow": 1}) == (
        "3 x overloaded, 1 x context overflow, 1 x key wrong"
    )
