"""Ask each question once: what several checks need is read one time, and all of them see the same reading."""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from runbook.probe import Probe, Ran, Reply
from runbook.probes import questions


class CachedProbe:
    """Remembers the answers of another probe until ``forget`` is called (after an action changed the machine)."""

    def __init__(self, host: Probe) -> None:
        self.host = host
        self._kept: dict[str, Any] = {}
        self._begun: dict[str, Future[Ran]] = {}

    @property
    def machine(self) -> str:
        """As the probe behind."""
        return self.host.machine

    @property
    def stack(self) -> str:
        """As the probe behind."""
        return self.host.stack

    @property
    def has_target(self) -> bool:
        """As the probe behind."""
        return self.host.has_target

    def forget(self) -> None:
        """Drop every answer."""
        self._kept.clear()

    def ahead(self, commands: Iterable[list[str]], timeout_s: float = 60.0) -> None:
        """Begin slow commands now, beside what is asked meanwhile; ``run`` waits for the one it is asked for.

        Each thread lives until its child has ended, so a child still dies with this process (``die_with_parent``).
        """
        wanted = [argv for argv in commands if questions.run(argv) not in self._kept]
        if wanted:
            pool = ThreadPoolExecutor(len(wanted))
            self._begun |= {
                questions.run(argv): pool.submit(self.host.run, argv, timeout_s) for argv in wanted
            }
            pool.shutdown(wait=False)

    def run(self, argv: list[str], timeout_s: float = 20.0) -> Ran:
        """As the probe behind, once."""
        key = questions.run(argv)
        if key in self._begun:
            self._kept[key] = self._begun.pop(key).result()
        if key not in self._kept:
            self._kept[key] = self.host.run(argv, timeout_s)
        ran: Ran = self._kept[key]
        return ran

    def read_text(self, path: str) -> str | None:
        """As the probe behind, once."""
        key = f"read {path}"
        if key not in self._kept:
            self._kept[key] = self.host.read_text(path)
        text: str | None = self._kept[key]
        return text

    def glob(self, pattern: str) -> tuple[str, ...]:
        """As the probe behind, once."""
        key = f"glob {pattern}"
        if key not in self._kept:
            self._kept[key] = self.host.glob(pattern)
        found: tuple[str, ...] = self._kept[key]
        return found

    def env(self, name: str) -> str | None:
        """As the probe behind, once."""
        key = f"env {name}"
        if key not in self._kept:
            self._kept[key] = self.host.env(name)
        value: str | None = self._kept[key]
        return value

    def inside(
        self, script: str, args: dict[str, str] | None = None, timeout_s: float = 120.0
    ) -> dict[str, Any]:
        """As the probe behind, once."""
        key = questions.inside(script, args)
        if key not in self._kept:
            self._kept[key] = self.host.inside(script, args, timeout_s)
        answer: dict[str, Any] = self._kept[key]
        return answer

    def http(self, method: str, path: str, json: dict[str, Any] | None = None) -> Reply:
        """As the probe behind, once."""
        key = questions.http(method, path, json)
        if key not in self._kept:
            self._kept[key] = self.host.http(method, path, json)
        reply: Reply = self._kept[key]
        return reply
