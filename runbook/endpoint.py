"""A server seen from a client: requests through the ``openai`` SDK with every arrival timed, and its ``/metrics``.

All of it works on any OpenAI-compatible address; ``Endpoint.of`` takes this workspace's own server.
"""

import time
from collections.abc import Mapping
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

    ``arrived`` are the times at which chunks with text came (one entry for an answer that was not streamed); ``error`` is
    "" or the kind and words of what went wrong, and ``status`` the HTTP status (0 where none came).
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
    def client(self) -> Any:  # noqa: ANN401 - the SDK is imported when first asked: it takes half a second
        """The SDK's client: no retries (a retry would hide a failure and falsify a time), no proxies."""
        import openai  # noqa: PLC0415

        return openai.OpenAI(
            base_url=f"{self.url}/v1",
            api_key=self.key or "none",
            max_retries=0,
            timeout=TIMEOUT_S,
            http_client=httpx.Client(
                trust_env=False, timeout=TIMEOUT_S, limits=httpx.Limits(max_connections=None)
            ),
        )

    def complete(self, prompt: str | list[int], max_tokens: int, **more: Any) -> Reply:  # noqa: ANN401
        """One streamed completion; ``prompt`` is text or token ids. Errors come back in the reply."""
        return self._timed(
            lambda: self.client.completions.create(
                model=self.model, prompt=prompt, max_tokens=max_tokens, **_streamed(more)
            ),
            lambda choice: choice.text,
        )

    def chat(self, messages: list[dict[str, Any]], max_tokens: int, **more: Any) -> Reply:  # noqa: ANN401
        """One streamed chat answer. Reasoning and tool calls count as arrivals too, but are no ``text``."""
        return self._timed(
            lambda: self.client.chat.completions.create(
                model=self.model, messages=messages, max_tokens=max_tokens, **_streamed(more)
            ),
            lambda choice: choice.delta.content or "",
        )

    def _timed(self, send: Any, text_of: Any) -> Reply:  # noqa: ANN401
        import openai  # noqa: PLC0415

        started = time.perf_counter()
        arrived: list[float] = []
        words, reason, usage, last = "", "", None, None
        try:
            for chunk in send():
                usage = chunk.usage or usage
                last = chunk
                for choice in chunk.choices:
                    reason = choice.finish_reason or reason
                    piece = text_of(choice)
                    words += piece
                    if piece or _more_than_text(choice):
                        arrived.append(time.perf_counter() - started)
        except openai.APIStatusError as why:
            return Reply(
                time.perf_counter() - started, tuple(arrived), error=_words(why), status=why.status_code
            )
        except (openai.APIError, httpx.HTTPError) as why:
            return Reply(time.perf_counter() - started, tuple(arrived), error=_words(why), status=0)
        return Reply(
            time.perf_counter() - started,
            tuple(arrived),
            words,
            reason,
            usage.prompt_tokens if usage else 0,
            usage.completion_tokens if usage else 0,
            answer=last,
        )

    def get(self, path: str, timeout_s: float = QUICK_S) -> tuple[int, str]:
        """(status, body) of a GET with the key; (0, why) when nobody answered."""
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            reply = httpx.get(f"{self.url}{path}", headers=headers, timeout=timeout_s, trust_env=False)
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


def _streamed(more: Mapping[str, Any]) -> dict[str, Any]:
    return {"stream": True, "stream_options": {"include_usage": True}, **more}


def _more_than_text(choice: Any) -> bool:  # noqa: ANN401 - a choice of either API
    delta = getattr(choice, "delta", None)
    return bool(
        delta
        and (
            getattr(delta, "reasoning", None)
            or getattr(delta, "reasoning_content", None)
            or getattr(delta, "tool_calls", None)
        )
    )


def _words(why: Exception) -> str:
    body = getattr(why, "body", None)
    said = body.get("message") if isinstance(body, dict) else None
    return f"{type(why).__name__}: {said or why}"
