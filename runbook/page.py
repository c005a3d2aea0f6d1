"""What a notebook holds: ``open_page`` and the page's look, check, plan and gate. Prints plain text, returns None.

The page and the command line are the two faces that print; whatever a reader would not learn from lives below.
"""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runbook import connect, guided, pins, report, triage, triaged
from runbook.actions import Action, Context
from runbook.actions.build_target import BuildTarget
from runbook.actions.flash_build import ShowFlash
from runbook.actions.jobs import Owner
from runbook.actions.model_files import MakeModel, folder_of
from runbook.actions.rollouts import Rollouts
from runbook.actions.server import StartServer, StopServer
from runbook.actions.validating import Asked, Validate
from runbook.actions.warming import WarmUp
from runbook.checks import ALL, BY_ID, model_memory
from runbook.checks.warm import LOG
from runbook.claims import ledger
from runbook.claims import render as claims_render
from runbook.errors import BadParameter, LayerNotReady, NotRecorded
from runbook.memory import plan, render
from runbook.model import Answer, Finding, Verdict
from runbook.params import Build, Common, Model, PageSpec, Server, Triage, page_spec, validated
from runbook.probe import Probe
from runbook.probes import questions
from runbook.probes.cached import CachedProbe
from runbook.serving.profiles import BASELINE
from runbook.workspace import workspace, write_whole

ACTIONS: dict[str, Callable[[Context, Common], Action]] = {
    "build_target": lambda ctx, _: BuildTarget(ctx),
    "build_flash": lambda ctx, _: ShowFlash(ctx),
    "make_model": lambda ctx, _: MakeModel(ctx),
    "start_server": lambda ctx, params: StartServer(ctx, profile=getattr(params, "profile", BASELINE)),
    "warm_up": lambda ctx, _: WarmUp(ctx),
    "rollouts": lambda ctx, _: Rollouts(ctx),
    "validate": lambda ctx, _: Validate(ctx, Asked(quick=True)),
    "stop_server": lambda ctx, _: StopServer(ctx),
}
OWNER_VARIABLE = "RUNBOOK_OWNER"
LOOK_LINES = 16
# How a line begins that an action says while it works; runbook run passes those on to the terminal.
DOING = "+ "


def open_page(name: str, **parameters: Any) -> "Page":  # noqa: ANN401 - checked against the page's dataclass next
    """Open a page by name with the values of its parameters cell; prints machine, stack and target.

    Raises:
        BadParameter: a parameter, stack, machine or target that does not exist or does not fit.
    """
    spec = page_spec(name)
    return Page(spec, validated(spec, parameters))


class Page:
    """One notebook's session with one machine."""

    def __init__(self, spec: PageSpec, params: Common) -> None:
        self.spec = spec
        self.params = params
        self.findings: dict[str, Finding] = {}
        self.work = workspace()
        self.apply = isinstance(params, Build) and params.apply
        self._watched: Callable[[], None] = lambda: None
        probe = connect.probe(params.machine, params.stack, params.target, self.work)
        self.live = probe.machine == "live"
        stack = pins.stack(probe.stack)
        self.ctx = Context(
            self.work,
            stack,
            Path(params.target).expanduser().absolute()
            if params.target
            else self.work.target_python(stack.name),
            not params.target,
            stack.model if not isinstance(params, Model) or params.model == "auto" else params.model,
            Owner.parse(os.environ[OWNER_VARIABLE]) if os.environ.get(OWNER_VARIABLE) else Owner.of(),
            params.deadline_s if isinstance(params, Server) else 900,
        )
        if self.live:
            probe = connect.probe(params.machine, probe.stack, params.target, self.work, folder_of(self.ctx))
        self.host = CachedProbe(probe)
        self._opened(probe)

    def _opened(self, probe: Probe) -> None:
        if banner := connect.banner(probe):
            print(report.wrapped(banner))
        print(f"page     {self.spec.name} on {probe.machine}")
        print(
            f"stack    {self.ctx.stack.name}: {self.ctx.stack.device}, vLLM {self.ctx.stack.vllm}, torch {self.ctx.stack.torch}"
        )
        if self.live:
            print(f"target   {self.ctx.python}")
            if not probe.has_target:
                print("         (not there yet)")

    def look(self, question: str, lines: int = LOOK_LINES) -> None:
        """Print one raw reading, cut to ``lines`` lines of 80 columns, so that the reader sees what a check sees."""
        print(f"> {question}")
        try:
            text = questions.ask(self.host, question).splitlines()
        except NotRecorded as gap:
            print(report.wrapped(gap.seen))
            return
        for line in text[:lines]:
            print(line if len(line) <= report.WIDTH else line[: report.WIDTH - 3] + "...")
        if len(text) > lines:
            print(f"... {len(text) - lines} more lines")

    def memory(self) -> None:
        """Print what the stack's server will take of this machine's memory, with a chart: the numbers MODEL-010 judges."""
        made = model_memory.planned(self.host)
        if isinstance(made, Answer):
            print(report.wrapped(f"no plan: {made.reason}"))
            return
        model, device, one = made
        print(render.text(one, self.ctx.model, plan.changes(model, device, one)), end="")

    def check(self, check_id: str) -> None:
        """Judge one check of this page, and silently what it requires; print its finding."""
        if check_id not in BY_ID:
            raise BadParameter(f"no check {check_id!r}", "an id of this page", "runbook check --list")
        found = guided.judged(check_id, self.host, self.findings)
        print(report.text(found, connect.places(self.host)))

    def steps(self, name: str) -> None:
        """Walk a guided form, ``health`` or ``golden``: a line a check, up to the first that is guilty."""
        for line in guided.walked(name, self.host, self.findings):
            print(line)

    def triage(self, text: str = "") -> None:
        """Print what a log comes to: the text given, else the file of the parameter ``log``, else the server's own."""
        named = self.params.log if isinstance(self.params, Triage) else ""
        log = text or (None if named else self.host.read_text(LOG))
        if named and not text:
            print(triaged.as_text(triage.read_file(named)), end="")
        elif log:
            print(triaged.as_text(triage.read_text(log)), end="")
        else:
            print("no server of this workspace was started, so there is no log")

    def claims(self, *ids: str) -> None:
        """Print what is said of this stack and what is so, from the ledger; it is the same on every machine."""
        print("\n\n".join(claims_render.shown(one) for one in ledger.chosen(ids)))

    def finding(self, check_id: str) -> Finding:
        """The finding of a check that was judged on this page."""
        return self.findings[check_id]

    def plan(self, name: str) -> None:
        """Print what an action would do; do it when the parameter ``apply`` is True and the machine is live."""
        if not self.live:
            print(f"{name}: a recording is replayed, so nothing is planned or done;")
            print("what follows was read when it was made")
            return
        action = ACTIONS[name](self.ctx, self.params)
        for line in action.plan():
            print(line)
        if not self.apply:
            there = isinstance(self.params, Build)
            print(
                "shown only; set apply = True to do it" if there else "shown only: this page changes nothing"
            )
            return
        action.apply(lambda line: print(f"{DOING}{line}", flush=True))
        if self.ctx.ours:
            self.ctx = dataclasses.replace(self.ctx, python=self.work.target_python(self.ctx.stack.name))
        # Places may exist now that did not before, and old readings no longer hold.
        self.host = CachedProbe(
            connect.probe(
                self.params.machine, self.ctx.stack.name, self.params.target, self.work, folder_of(self.ctx)
            )
        )

    def watch(self) -> None:
        """With ``ui = "widgets"``, a live view of the server's log, tokens, requests and KV cache, until the page ends."""
        if not (isinstance(self.params, Server) and self.params.ui == "widgets"):
            print('a view only, shown with ui = "widgets"; every result is printed in any case')
            return
        if not self.live:
            print("a recording is replayed: there is no server to watch")
            return
        from runbook.ui import LiveView  # noqa: PLC0415 - widgets are asked for, or not imported

        view = LiveView(self.work)
        view.show()
        self._watched = view.close

    def stop(self) -> None:
        """Stop the server, unless it is kept for the next page."""
        if isinstance(self.params, Server) and self.params.keep_server:
            print("the server is kept for the next page")
            return
        self.plan("stop_server")

    def gate(self) -> None:
        """Summary by verdict; write the findings; end the live view; raise when the layer is not ready.

        Raises:
            LayerNotReady: a finding of this page is fail or unknown, or a check of its layers was not asked.
        """
        self._watched()
        mine = [one for one in ALL if one.layer in self.spec.layers]
        found = [self.findings[one.id] for one in mine if one.id in self.findings]
        not_asked = tuple(one.id for one in mine if one.id not in self.findings)
        print(report.summary(found))
        if self.params.out_dir:
            self._write(found)
        bad = tuple(one.id for one in found if one.verdict in (Verdict.FAIL, Verdict.UNKNOWN)) + not_asked
        if not bad:
            print(f"gate     {self.spec.name} is ready")
            return
        words = f"{self.spec.name} is not ready: {', '.join(bad)}" + (
            f" (not asked: {', '.join(not_asked)})" if not_asked else ""
        )
        if self.params.strict:
            raise LayerNotReady(bad, words)
        print(f"gate     {words}")

    def _write(self, found: list[Finding]) -> None:
        folder = Path(self.params.out_dir) / "findings"
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{self.spec.name}@{self.ctx.stack.name}.json", report.json_text(found))
