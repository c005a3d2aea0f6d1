"""What went wrong with a request, by name: the reply's status and words, and what is known of the server it went to.

The texts are those of vLLM 0.19.1 and 0.32.0 and of the ``openai`` SDK; a text that is not known leaves the fault at
what the status alone says, never at a guess. ``runbook.actions.looking.fault`` gathers the facts and asks here.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from runbook.errors import ActionFailed
from runbook.parse.numbers import whole

WRONG_MODEL = "wrong model name"
NO_KEY = "key missing"
WRONG_KEY = "key wrong"
CONTEXT = "context overflow"
REFUSED = "nobody listens"
DIED = "server died"
STUCK = "server stuck"
TIMEOUT = "no answer in time"
CUT = "answer cut off"
OVERLOADED = "overloaded"
NOT_SERVED = "not served"
BAD_REQUEST = "bad request"
BROKEN = "server error"
NAMES = (
    WRONG_MODEL, NO_KEY, WRONG_KEY, CONTEXT, REFUSED, DIED, STUCK, TIMEOUT, CUT, OVERLOADED, NOT_SERVED, BAD_REQUEST, BROKEN,
)  # fmt: skip

_CONTEXT = re.compile(
    r"maximum context length|max_model_len|longer than the maximum model length", re.IGNORECASE
)
_LIMIT = re.compile(
    r"(?:maximum (?:context|model) length (?:is|of) |max_(?:total_tokens|model_len)=)(\d{1,9})", re.IGNORECASE
)
_DEAD = re.compile(r"EngineCore encountered an issue|EngineDeadError|engine (?:is )?dead", re.IGNORECASE)
_CUT = re.compile(
    r"RemoteProtocolError|peer closed connection|incomplete chunked read|ReadError|Connection reset|Broken pipe"
)
_TIMED_OUT = re.compile(r"timed? ?out|Timeout", re.IGNORECASE)


class Answered(Protocol):
    """A reply as ``runbook.endpoint.Reply`` has it."""

    @property
    def status(self) -> int:
        """The HTTP status; 0 where none came."""

    @property
    def error(self) -> str:
        """The kind and words of what went wrong; "" when nothing did."""


@dataclass(frozen=True)
class Known:
    """What is known of the server beside the reply; every part may be left out.

    ``model`` is the name that was asked for, ``served`` the names that ``/v1/models`` gives (None: not asked or not told),
    ``max_model_len`` its limit in tokens, ``keyed`` whether a key was sent. ``end`` says in words how the server's process
    ended ("" while it runs, None for a server that is not ours); ``standstill`` why it is taken to be stuck.
    """

    model: str = ""
    served: tuple[str, ...] | None = None
    max_model_len: int | None = None
    keyed: bool = True
    end: str | None = None
    standstill: str = ""


@dataclass(frozen=True)
class Fault:
    """One of ``NAMES``, with what was seen, what was expected and what to do."""

    name: str
    seen: str
    expected: str
    do: str

    def failed(self) -> ActionFailed:
        """The same as an error to raise (exit code 1)."""
        return ActionFailed(f"{self.name}: {self.seen}", self.expected, self.do)

    def text(self) -> str:
        """One line."""
        return f"{self.name}: {self.seen}"


def named(reply: Answered, known: Known | None = None) -> Fault | None:
    """The fault of a reply; None for one without an error."""
    if not reply.error:
        return None
    about = known or Known()
    # A server that is gone or stands still explains whatever a client saw of it.
    if about.end:
        return Fault(
            DIED,
            f"the server is gone: {about.end}; the client saw {_said(reply)}",
            "a server that stays up under the request",
            "runbook status",
        )
    if about.standstill:
        return Fault(
            STUCK,
            f"{about.standstill}; the client saw {_said(reply)}",
            "a server that makes progress",
            "runbook stop, then start it again",
        )
    return _without_answer(reply) if reply.status in (0, 200) else _by_status(reply, about)


def count(faults: Mapping[str, int]) -> str:
    """How often each was seen, the most frequent first: "3 x overloaded, 1 x key wrong"."""
    rows = sorted(faults.items(), key=lambda row: (-row[1], row[0]))
    return ", ".join(f"{number} x {name}" for name, number in rows)


def _said(reply: Answered) -> str:
    words = " ".join(reply.error.split())
    return (f"{reply.status} " if reply.status else "") + (f"{words[:237]}..." if len(words) > 240 else words)  # noqa: PLR2004


def _without_answer(reply: Answered) -> Fault:
    if _DEAD.search(reply.error):
        return _dead(reply)
    if _TIMED_OUT.search(reply.error):
        return Fault(
            TIMEOUT,
            _said(reply),
            "an answer before the deadline",
            "runbook status says whether the server is stuck or only slow; then ask for fewer tokens or allow more time",
        )
    if _CUT.search(reply.error):
        return Fault(
            CUT,
            f"{_said(reply)}: the connection was closed before the answer's end",
            "a whole answer",
            "runbook status; a server that still runs closes a connection after a refused request (ask again), or a proxy did",
        )
    return Fault(
        REFUSED,
        _said(reply),
        "a server on that address",
        "runbook status; the port is bound only once the engine is ready",
    )


def _dead(reply: Answered) -> Fault:
    return Fault(
        DIED,
        f"the engine behind the server died; the client saw {_said(reply)}",
        "an engine that stays up under the request",
        "runbook status names the root line of its log",
    )


def _by_status(reply: Answered, about: Known) -> Fault:
    if reply.status in (401, 403):
        return Fault(
            WRONG_KEY if about.keyed else NO_KEY,
            f"{_said(reply)}; " + ("a key was sent" if about.keyed else "no key was sent"),
            "the key that the server was started with",
            "for this workspace's server it lies in jobs/server.key; for another, name its variable with --key-env",
        )
    if reply.status == 404:  # noqa: PLR2004
        return _not_found(reply, about)
    if _DEAD.search(reply.error):
        return _dead(reply)
    if reply.status in (400, 413, 422) and _CONTEXT.search(reply.error):
        told = _LIMIT.search(reply.error)
        limit = whole(told[1]) if told else about.max_model_len
        return Fault(
            CONTEXT,
            _said(reply),
            "prompt and answer within the server's context" + (f" of {limit} tokens" if limit else ""),
            "ask for fewer tokens, shorten the prompt, or serve with a larger --max-model-len (runbook plan-memory)",
        )
    return _other(reply)


def _not_found(reply: Answered, about: Known) -> Fault:
    if "does not exist" in reply.error or (about.served is not None and about.model not in about.served):
        have = ", ".join(about.served or ()) or "names that GET /v1/models lists"
        asked = about.model or "the name asked for"
        return Fault(WRONG_MODEL, f"{asked}: {_said(reply)}", f"one of: {have}", "ask for one of them")
    return Fault(
        NOT_SERVED,
        _said(reply),
        "an OpenAI-compatible path",
        "give the address without /v1, and look at GET /version",
    )


def _other(reply: Answered) -> Fault:
    if reply.status in (429, 503):
        do = "send fewer at once; runbook limits names what binds"
        return Fault(OVERLOADED, _said(reply), "room for the request", do)
    if reply.status < 500:  # noqa: PLR2004
        return Fault(
            BAD_REQUEST,
            _said(reply),
            "a request that this server takes",
            "read the words: they name the field",
        )
    return Fault(
        BROKEN, _said(reply), "an answer", "read the server's log; runbook status names its root line"
    )
