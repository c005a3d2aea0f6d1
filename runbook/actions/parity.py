"""Ask a server and transformers the same, in the target; with a server of our own for as long as it takes."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runbook import launch, parity
from runbook.actions import Context, Say
from runbook.actions.jobs import Jobs, log_tail
from runbook.actions.model_files import MakeModel, folder_of
from runbook.actions.server import NAME, SERVED, StartServer, StopServer
from runbook.errors import ActionFailed, BadParameter
from runbook.parse import vllm_log
from runbook.probes.live import LiveProbe
from runbook.workspace import Workspace

KEY = "VLLM_API_KEY"
# A reference on the CPU takes minutes for a model of some billion parameters, once for each hypothesis.
LIMIT_S = 7200.0
LOG_LINES = 400


@dataclass(frozen=True)
class Question:
    """What is compared: a server at ``url`` (its key in the variable ``key_env``, "" for none) with a checkpoint."""

    url: str
    key_env: str
    model: str
    reference: Path
    dtype: str
    prompts: int
    tokens: int


def ours(reference: Path, dtype: str, prompts: int, tokens: int) -> Question:
    """The question to this workspace's own server."""
    return Question("http://127.0.0.1:{port}", KEY, SERVED, reference, dtype, prompts, tokens)


def measured(ctx: Context, asked: Question) -> parity.Parity:
    """The comparison. Where our own server died of it, the reason is the line of its log that says why."""
    host = LiveProbe(ctx.work, ctx.stack.name, ctx.python)
    args = {
        "path": str(asked.reference), "url": asked.url, "model": asked.model, "dtype": asked.dtype,
        "prompts": str(asked.prompts), "tokens": str(asked.tokens), "limit": str(parity.LIMIT), "key-env": asked.key_env,
    }  # fmt: skip
    facts = host.inside("parity_reference", args, LIMIT_S)
    jobs = Jobs(ctx.work.jobs)
    if "error" in facts and "{port}" in asked.url:
        log = ctx.work.jobs / f"{NAME}.log"
        root = vllm_log.root_line("\n".join(log_tail(log, LOG_LINES)))
        ended = "" if jobs.get(NAME) else "; the server is gone"
        if root:
            facts = {"error": f"{facts['error']}{ended}; its log says: {root}"}
    return parity.compare(facts)


@dataclass(frozen=True)
class Running:
    """This workspace's server as it was started; ``dtype`` is "auto" where its command names none."""

    stack: str
    model: str
    dtype: str
    python: Path


def running(work: Workspace) -> Running | None:
    """This workspace's server while it runs.

    Raises:
        ActionFailed: one runs and nothing says what it serves: it is still starting, or was not started by an action.
    """
    job = Jobs(work.jobs).get(NAME)
    if job is None:
        return None
    try:
        boot = json.loads((work.jobs / f"{NAME}.boot.json").read_text(encoding="utf-8"))
        named = dict(itertools.pairwise(job.argv)).get("--dtype", "auto")
        return Running(str(boot["stack"]), str(boot["model"]), named, Path(job.argv[0]))
    except (OSError, ValueError, KeyError, TypeError):
        raise ActionFailed(
            "a server of this workspace runs, and it is not ready",
            "one that is ready, or none",
            "wait for it, or stop it: runbook stop",
        ) from None


@contextmanager
def served(ctx: Context, dtype: str, say: Say) -> Iterator[None]:
    """A server of our own, started with that dtype and stopped at the end, however that comes.

    A checkpoint that can be generated and is not there is made first.

    Raises:
        BadParameter: there is no target environment, or no such checkpoint here.
        ActionFailed: it could not be started.
    """
    if not ctx.python.exists():
        raise BadParameter(
            f"no target environment for {ctx.stack.name}",
            "one that can serve",
            f"runbook env build --stack {ctx.stack.name}",
        )
    if not (folder_of(ctx) / "config.json").exists():
        MakeModel(ctx).apply(say)
    extra = () if dtype == "auto" else (launch.Flag("--dtype", dtype, "asked for"),)
    StartServer(ctx, extra).apply(say)
    try:
        yield
    finally:
        StopServer(ctx).apply(say)
