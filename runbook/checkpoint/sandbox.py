"""A chat template rendered as transformers renders it, in a child with a limit on time, memory and output.

A template comes with the checkpoint and is a program: jinja2's sandbox keeps it from our objects, but not from looping
or from multiplying a text. The environment is that of transformers 4.44 to 5.24 (``utils/chat_template_utils.py``):
blocks trimmed, break and continue, ``tojson`` without escapes for HTML, ``raise_exception``, ``strftime_now``, and the
``generation`` tag.
"""

import contextlib
import datetime
import json
import os
import resource
import select
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

CPU_S = 0.25  # for all conversations together; the template of Qwen3.5 takes 0.03 s
WAIT_S = 10.0  # for a child that is given no processor
MEMORY = 2 << 30  # bytes of address space
LONGEST = 1 << 16  # letters of one rendering
ALL = 1 << 22  # bytes that are taken from the child
A_DAY = datetime.datetime(
    2026, 1, 1, tzinfo=datetime.timezone.utc
)  # the same on every day, so that answers can be compared


class Generation(jinja2.ext.Extension):
    """The tag around an assistant's words, which trainers use; what is inside is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012 - jinja2's own form

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """A block that calls nothing but its content."""
        number = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_same"), [], [], body).set_lineno(number)

    def _same(self, caller: Any) -> str:  # noqa: ANN401 - jinja2's macro
        return str(caller())


def environment() -> ImmutableSandboxedEnvironment:
    """What a template is compiled in."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols],
        autoescape=False,
    )
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = A_DAY.strftime
    return made


def _tojson(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - as templates call it
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def render(source: str, conversations: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Name -> (``text``, the rendering) | (``raises``, why) | (``parse``, why) | (``limit``, which).

    A template that does not parse, or goes beyond a limit, has that one answer for the first conversation it concerns
    and none for those after it.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            _limit()
            with os.fdopen(writer, "w", encoding="utf-8", errors="backslashreplace") as pipe:
                _renderings(source, conversations, pipe)
        finally:
            os._exit(0)
    os.close(writer)
    try:
        said = _lines(reader)
    finally:
        os.close(reader)
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    found: dict[str, tuple[str, str]] = {name: (kind, text) for name, kind, text in said}
    ended = any(kind in {"parse", "limit"} for kind, _ in found.values())
    missing = next((name for name in conversations if name not in found), None)
    if missing is not None and not ended:
        found[missing] = ("limit", f"does not come to an end within {CPU_S:g} s")
    return found


def _limit() -> None:
    """Let the kernel end this process; a limit that is lower already stays."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, CPU_S)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > MEMORY:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def _renderings(source: str, conversations: Mapping[str, Mapping[str, Any]], pipe: Any) -> None:  # noqa: ANN401 - a text file
    """One line of JSON for each conversation, written as soon as it is known."""

    def say(name: str, kind: str, text: str) -> None:
        pipe.write(json.dumps([name, kind, text[:LONGEST]]) + "\n")
        pipe.flush()

    first = next(iter(conversations))
    try:
        template = environment().from_string(source)
    except MemoryError:
        return say(first, "limit", f"asks for more than {MEMORY >> 30} GiB of memory")
    except Exception as why:  # noqa: BLE001 - whatever the parser makes of it is the answer
        return say(first, "parse", _said(why))
    for name, variables in conversations.items():
        try:
            parts, size = [], 0
            for part in template.generate(**variables):
                parts.append(part)
                size += len(part)
                if size > LONGEST:
                    return say(name, "limit", f"makes more than {LONGEST} letters of a short conversation")
            say(name, "text", "".join(parts))
        except MemoryError:
            return say(name, "limit", f"asks for more than {MEMORY >> 30} GiB of memory")
        except Exception as why:  # noqa: BLE001 - as above
            say(name, "raises", _said(why))
    return None


def _said(why: Exception) -> str:
    line = f" at line {why.lineno}" if isinstance(why, jinja2.TemplateSyntaxError) else ""
    name = "" if isinstance(why, jinja2.TemplateError) else f"{type(why).__name__}: "
    return f"{name}{str(why)[:1000]}{line}"


def _lines(reader: int) -> Sequence[tuple[str, str, str]]:
    """Whole lines that the child wrote before it ended, or before we lost patience."""
    parts: list[bytes] = []
    until = time.monotonic() + WAIT_S
    while (
        sum(map(len, parts)) < ALL and select.select([reader], [], [], max(0.0, until - time.monotonic()))[0]
    ):
        part = os.read(reader, 1 << 16)
        if not part:
            break
        parts.append(part)
    lines = b"".join(parts).decode("utf-8", "replace").split("\n")
    return [tuple(json.loads(line)) for line in lines[:-1]]
