"""A server seen from a client: requests through the ``openai`` SDK with every arrival timed, and its ``/metrics``.

All of it works on any OpenAI-compatible address; ``actions/gauging.py`` names this workspace's own server.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import httpx

from runbook.errors import ActionFailed
from runbook.parse import metrics

TIMEOUT_S = 600.0
QUICK_S = 5.0


@dataclass(frozen=True)
class Reply:
    """One request and what came of it; times in seconds from the moment it was sent.

    ``arrived`` are the times at which chunks with tokens came, some of which are no text (one entry for an answer that was
    not streamed); ``error`` is "" or the kind and words of what went wrong, and ``status`` the HTTP status (0 where none
    came).
    """

    seconds: float
    arrived: tuple[float, ...] = ()
    text: str = ""
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    error: str = ""
    status: int = 200
    answer: Any = field(default=None, compare=False, repr=False)

    @property
    def ttft_s(self) -> float | None:
        """Time to first token; None where nothing came."""
        return self.arrived[0] if self.arrived else None

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first; None below two tokens or without streaming."""
        if len(self.arrived) < 2 or self.completion_tokens < 2:  # noqa: PLR2004 - a gap has two ends
            return None
        return (self.arrived[-1] - self.arrived[0]) / (self.completion_tokens - 1)


@dataclass(frozen=True)
class Endpoint:
    """An address with its model and key; ``url`` is without ``/v1``. The key never shows in a repr."""

    url: str
    model: str
    key: str = field(default="", repr=False)

    @cached_property
    def _http(self) -> httpx.Client:
        """One for all requests: each client reads the certificates of authorities anew, 22 ms of processor time."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        return httpx.Client(trust_env=False, timeout=TIMEOUT_S, limits=limits)

    @cached_property
    def client(self) -> Any:  # noqa: ANN401 - the SDK is imported when first asked: it takes half a second
        """The SDK's client: no retries (a retry would hide a failure and falsify a time), no proxies.

        A connection serves one request. vLLM 0.19.1 resets a kept one after it refused a request with 400, so the next
        one would fail though nothing is wrong with it; opening one costs a fraction of a millisecond on loopback.
        """
        import openai  # noqa: PLC0415

        return openai.OpenAI(
            base_url=f"{self.url}/v1",
            api_key=self.key or "none",
            max_retries=0,
            timeout=TIMEOUT_S,
            http_client=self._http,
        )

    def complete(
        self,
        prompt: str | list[int],
        max_tokens: int,
        *,
        stream: bool = True,
        **more: Any,  # noqa: ANN401
    ) -> Reply:
        """One completion; ``prompt`` is text or token ids. Errors come back in the reply."""
        # Looked up before the clock runs: the SDK imports and builds on first use, half a second that no server took.
        create = self.client.completions.create
        asked = {
            "model": self.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            **_streamed(more, stream=stream),
        }
        return _timed(lambda: create(**asked), stream=stream)

    def chat(
        self,
        messages: list[dict[str, Any]],
        max_tokens: int,
        *,
        stream: bool = True,
        **more: Any,  # noqa: ANN401
    ) -> Reply:
        """One chat answer. Reasoning and tool calls count as arrivals too, but are no ``text``."""
        create = self.client.chat.completions.create
        asked = {
            "model": self.model,
            "messages": messages,
            "max_tokens": max_tokens,
            **_streamed(more, stream=stream),
        }
        return _timed(lambda: create(**asked), stream=stream)

    def get(self, path: str, timeout_s: float = QUICK_S) -> tuple[int, str]:
        """(status, body) of a GET with the key; (0, why) when nobody answered."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            reply = self._http.get(f"{self.url}{path}", headers=headers, timeout=timeout_s)
        except httpx.HTTPError as why:
            return 0, f"{type(why).__name__}: {why}"
        return reply.status_code, reply.text

    def metrics(self) -> metrics.Metrics:
        """One reading of ``/metrics``.

        Raises:
            ActionFailed: nobody answered, or what came was no Prometheus text.
        """
        status, body = self.get("/metrics")
        found = metrics.read(body) if status == httpx.codes.OK else metrics.Metrics({})
        if not found:
            raise ActionFailed(
                f"GET {self.url}/metrics: {status or body}", "a page of Prometheus text", "runbook status"
            )
        return found


def _timed(send: Callable[[], Any], *, stream: bool) -> Reply:
    import openai  # noqa: PLC0415

    started = time.perf_counter()
    arrived: list[float] = []
    words, reason, usage, last = "", "", None, None
    try:
        for chunk in send() if stream else (send(),):
            usage = getattr(chunk, "usage", None) or usage
            last = chunk
            for choice in chunk.choices or ():
                reason = choice.finish_reason or reason
                words += _text(choice)
                if not _only_a_role(choice):
                    arrived.append(time.perf_counter() - started)
    except openai.APIStatusError as why:
        return Reply(time.perf_counter() - started, tuple(arrived), error=_words(why), status=why.status_code)
    except (
        openai.APIError,
        httpx.HTTPError,
        ValueError,
    ) as why:  # ValueError: a piece of the answer is no JSON
        return Reply(time.perf_counter() - started, tuple(arrived), words, error=_words(why), status=0)
    return Reply(
        time.perf_counter() - started,
        tuple(arrived),
        words,
        reason,
        usage.prompt_tokens if usage else 0,
        usage.completion_tokens if usage else 0,
        # A server that dies may close the stream in good order.
        error="" if reason else "CutOff: the answer ended without a finish reason (peer closed connection)",
        status=200 if reason else 0,
        answer=last,
    )


def _streamed(more: Mapping[str, Any], *, stream: bool) -> dict[str, Any]:
    return {"stream": True, "stream_options": {"include_usage": True}, **more} if stream else dict(more)


def _text(choice: Any) -> str:  # noqa: ANN401 - a choice of either API, streamed or not
    part = getattr(choice, "delta", None) or getattr(choice, "message", None)
    return str((part.content if part else getattr(choice, "text", "")) or "")


def _only_a_role(choice: Any) -> bool:  # noqa: ANN401 - a choice of either API
    """True for the opening chunk of a chat stream, which brings no token.

    A chunk without text may bring one all the same: a piece of a character, or a special token.
    """
    delta = getattr(choice, "delta", None)
    return bool(
        delta
        and delta.role
        and not (
            delta.content
            or choice.finish_reason
            or getattr(delta, "reasoning", None)
            or getattr(delta, "reasoning_content", None)
            or getattr(delta, "tool_calls", None)
        )
    )


def _words(why: Exception) -> str:
    body = getattr(why, "body", None)
    said = body.get("message") if isinstance(body, dict) else None
    # The SDK says no more than "Connection error."; refused, reset and cut off are told apart by what is behind it.
    behind = f" ({type(why.__cause__).__name__}: {why.__cause__})" if why.__cause__ and not said else ""
    return f"{type(why).__name__}: {said or why}{behind}"
