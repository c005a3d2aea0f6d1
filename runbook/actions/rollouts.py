"""Ask a server what rollouts will ask of it: groups with log-probabilities, batches, shared prefixes, sleep, reload.

All of it are requests; only the full form also reloads weights and puts to sleep, and only the workspace's own server
with vLLM's development endpoints, which are left as they were found: the old weights, awake.
"""

import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from runbook import launch, measured
from runbook.actions import Context, Say
from runbook.actions.jobs import Job, Jobs
from runbook.actions.launching import SERVED
from runbook.actions.model_files import GENERATED, folder_of
from runbook.actions.server import NAME, api_key
from runbook.checkpoint import headers
from runbook.endpoint import Endpoint
from runbook.errors import ActionFailed, BadParameter
from runbook.probes.live import LiveProbe
from runbook.serving.rollout import AGAIN, GREEDY, SEEDED
from runbook.workspace import Workspace

KIND = "rollout"
SEED = 20
# vLLM's own default is 256 and more; that many at once add nothing to what 64 show.
MOST_AT_ONCE = 64
AT_ONCE = 16
DEV = "VLLM_SERVER_DEV_MODE"
# Anything a checkpoint's generation_config.json would else add: samples must be the policy's own.
PLAIN = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
IDS = {"return_token_ids": True, "return_tokens_as_token_ids": True}
ANSWER_LIMIT_S = 600.0
HELD_S = 1.0

ENGLISH = (
    "The harbour master wrote down which ships came in, what they carried and how long each of them stayed. "
)
CHINESE = "港务长记下哪些船只入港、装载何物、停留多久。"
PROMPTS = {
    "short": "Two and two are",
    "english": ENGLISH * 2,
    "chinese": CHINESE * 3,
    "long": ENGLISH * 8 + CHINESE,
}
ONE_REQUEST, N_REQUESTS, UNSHARED = "n in one request", "n requests", "n requests, nothing shared"


@dataclass(frozen=True)
class Asked:
    """How much is asked: ``samples`` a prompt, ``tokens`` an answer, ``groups`` at once (0: no throughput)."""

    samples: int = 8
    tokens: int = 16
    groups: int = 0
    rounds: int = 2
    quick: bool = True


QUICK = Asked()
FULL = Asked(samples=8, tokens=32, groups=4, quick=False)


class Rollouts:
    """Measure this workspace's running server; writes ``jobs/server.rollout.json``.

    ``new_weights`` is a checkpoint of the same shapes to reload from (the full form only); a generated model's sibling
    is made for the purpose, else the weights that are served are loaded again.
    """

    def __init__(self, ctx: Context, asked: Asked = QUICK, new_weights: Path | None = None) -> None:
        self.ctx = ctx
        self.asked = asked
        self.new_weights = new_weights

    def plan(self) -> list[str]:
        """What would be asked, a line each."""
        asked = self.asked
        lines = [
            f"groups    {len(PROMPTS)} prompts, {asked.samples} samples each, log-probabilities of every token, computed anew once",
            f"batch     the same prompts alone, again, and among as many as run at once (at most {MOST_AT_ONCE}), greedy and seeded",
        ]
        if asked.groups:
            lines.append(
                f"shared    {asked.groups} groups of {asked.samples}: in one request, in {asked.samples}, and with nothing shared"
            )
        if not asked.quick:
            lines += [
                "sleep     to sleep and awake again, where that is offered",
                f"reload    {self.new_weights or 'other weights where they can be made, else the same'}, and back, where that is offered",
            ]
        return [*lines, f"writes    {measured.path(self.ctx.work, KIND)}"]

    def apply(self, say: Say) -> None:
        """Ask all of it.

        Raises:
            ActionFailed: no server of this workspace runs, or it did not come through a sleep or a reload.
            BadParameter: the new weights do not fit the served model.
        """
        endpoint, job = own(self.ctx.work)
        if self.new_weights is not None:
            fitting(folder_of(self.ctx), self.new_weights)
        # On a CPU only a prompt so short that as many as run at once fit in one step.
        seeded = tuple(PROMPTS) if self.ctx.stack.device == "cuda" else ("short",)
        facts = measure(endpoint, self.asked, say, at_once(job), seeded)
        measured.write(self.ctx.work, KIND, job.marker, facts)
        if not self.asked.quick and "error" not in facts["groups"]:
            measured.write(self.ctx.work, KIND, job.marker, facts | self._renewed(endpoint, say))

    def _renewed(self, endpoint: Endpoint, say: Say) -> dict[str, Any]:
        status, _ = endpoint.get("/is_sleeping")
        if status != httpx.codes.OK:
            why = f"the server was started without {DEV}=1, so it has no endpoint for it"
            return {"sleep": {"why": why}, "reload": {"why": why}}
        slept = self._slept(endpoint, say)
        with self._others() as (folder, different):
            reloaded = _reloaded(endpoint, folder_of(self.ctx), folder, self.asked.tokens)
        say(f"weights reloaded in {reloaded['seconds']:.2f} s")
        return {"sleep": slept, "reload": {**reloaded, "different": different}}

    def _slept(self, endpoint: Endpoint, say: Say) -> dict[str, Any]:
        job = Jobs(self.ctx.work.jobs).get(NAME)
        if self.ctx.stack.device == "cuda" and (job is None or "--enable-sleep-mode" not in job.argv):
            return {"why": "the server was started without --enable-sleep-mode"}
        found = _asleep_and_awake(endpoint, self.ctx, self.asked.tokens)
        say(f"asleep after {found['sleep_s']:.2f} s, awake after {found['wake_s']:.2f} s")
        return found

    @contextmanager
    def _others(self) -> Iterator[tuple[Path, bool]]:
        """Weights to reload from, and whether they are others than those served."""
        served = folder_of(self.ctx)
        if self.new_weights is not None:
            yield self.new_weights.expanduser().resolve(), True
        elif self.ctx.model in GENERATED:
            with tempfile.TemporaryDirectory(prefix="sibling-", dir=self.ctx.work.models) as held:
                probe = LiveProbe(self.ctx.work, self.ctx.stack.name, self.ctx.python)
                folder = Path(held) / self.ctx.model
                made = probe.inside("make_model", {"kind": self.ctx.model, "seed": "1", "out": str(folder)})
                if "error" in made:
                    raise ActionFailed(f"no sibling of {self.ctx.model}: {made['error']}", "a checkpoint")
                yield folder, True
        else:
            yield served, False


def own(work: Workspace) -> tuple[Endpoint, Job]:
    """This workspace's running server.

    Raises:
        ActionFailed: none runs.
    """
    job = Jobs(work.jobs).get(NAME)
    if job is None or not job.port:
        raise ActionFailed(
            "no server of this workspace runs", "one that is ready", "runbook serve --profile rl-rollout"
        )
    return Endpoint(f"http://{launch.HOST}:{job.port}", SERVED, api_key(work.jobs)), job


def fitting(served: Path, new: Path) -> None:
    """Refuse weights that would not load: after a reload that failed halfway the engine dies at the next request.

    Raises:
        BadParameter: there are no weights, or names, types or shapes differ from those served.
    """
    have, want = (headers.read(folder.expanduser().resolve()) for folder in (new, served))
    forms = [{name: (one.dtype, one.shape) for name, one in each.tensors.items()} for each in (have, want)]
    if not forms[0] or have.faults:
        why = f": {have.faults[0].text}" if have.faults else ""
        raise BadParameter(f"{new} holds no weights that can be read{why}", "a folder with *.safetensors")
    if forms[0] != forms[1]:
        odd = sorted(
            name for name in forms[0].keys() | forms[1].keys() if forms[0].get(name) != forms[1].get(name)
        )
        raise BadParameter(
            f"{len(odd)} tensors of {new} differ in type or shape from the served ones, {odd[0]} first",
            "a checkpoint of the same model",
            "name another folder",
        )


def at_once(job: Job) -> int:
    """How many requests the server runs at once, as far as its command says."""
    named = dict(itertools.pairwise(job.argv)).get("--max-num-seqs", "")
    return min(int(named), MOST_AT_ONCE) if named.isdecimal() else AT_ONCE


def measure(
    endpoint: Endpoint, asked: Asked, say: Say, largest: int = AT_ONCE, seeded: Sequence[str] = ()
) -> dict[str, Any]:
    """All that takes requests alone; works on any OpenAI-compatible server that knows vLLM's fields.

    ``largest`` is how many are sent at once, ``seeded`` the prompts that may be asked with a seed: on a CPU a seeded
    prompt that is computed in more than one piece kills the engine ("CPU Generator does not use offset", measured on
    0.32.0; 0.19.1 has the same lines), and another's server does not say what it runs on. What the server refused is in the facts as ``error``, with its words.
    """
    facts: dict[str, Any] = {"quick": asked.quick}
    parts: list[tuple[str, Callable[[], dict[str, Any]]]] = [
        ("groups", lambda: _groups(endpoint, asked)),
        ("batch", lambda: _batch(endpoint, asked, largest, seeded)),
    ]
    if asked.groups:
        parts.append(("throughput", lambda: _throughput(endpoint, asked)))
    for name, ask in parts:
        began = time.perf_counter()
        facts[name] = _or_error(ask)
        said = f"refused: {facts[name]['error']}" if "error" in facts[name] else "asked"
        say(f"{name} {said}, {time.perf_counter() - began:.1f} s")
    return facts


def _or_error(ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    import openai  # noqa: PLC0415 - half a second

    try:
        return ask()
    except (openai.APIError, httpx.HTTPError) as why:
        return {"error": f"{type(why).__name__}: {why}"}


def _send(endpoint: Endpoint, prompt: Any, tokens: int, extra: dict[str, Any], **more: Any) -> Any:  # noqa: ANN401 - text, ids or several of either; the SDK's answer
    return endpoint.client.completions.create(
        model=endpoint.model,
        prompt=prompt,
        max_tokens=tokens,
        top_p=1.0,
        extra_body={**PLAIN, **extra},
        **more,
    )


def _sampled(choice: Any) -> dict[str, Any]:  # noqa: ANN401 - a choice of the SDK
    """One answer as the facts keep it: token ids, their log-probabilities, the two best at each place."""
    given = choice.logprobs
    best = [
        sorted(((_id(token), value) for token, value in place.items()), key=lambda one: -one[1])[:2]
        for place in (given.top_logprobs or [] if given else [])
    ]
    return {
        "tokens": [_id(token) for token in given.tokens] if given else [],
        "logprobs": list(given.token_logprobs) if given else [],
        "best": best,
        "finish": choice.finish_reason,
    }


def _id(token: str) -> int:
    """The id in "token_id:42"; a server that does not know that field sends text, which has none."""
    name, _, number = token.partition(":")
    return int(number) if name == "token_id" and number.isdecimal() else -1


def _groups(endpoint: Endpoint, asked: Asked) -> dict[str, Any]:
    rows = []
    for name, prompt in PROMPTS.items():
        reply = _send(endpoint, prompt, asked.tokens, IDS, n=asked.samples, temperature=1.0, logprobs=2)
        ids = reply.choices[0].model_extra.get("prompt_token_ids") or []
        samples = [_sampled(one) for one in reply.choices]
        rows.append(
            {
                "prompt": name,
                "prompt_tokens": reply.usage.prompt_tokens,
                "completion_tokens": reply.usage.completion_tokens,
                "samples": samples,
                "anew": _anew(endpoint, ids, samples),
            }
        )
    at = {
        name: _send(endpoint, PROMPTS["short"], 1, IDS, temperature=heat, logprobs=5)
        for name, heat in (("at_1", 1.0), ("at_half", 0.5))
    }
    seen = {name: dict(reply.choices[0].logprobs.top_logprobs[0]) for name, reply in at.items()}
    return {"samples": asked.samples, "rows": rows, **seen}


def _anew(endpoint: Endpoint, ids: list[int], samples: Sequence[dict[str, Any]]) -> list[list[float | None]]:
    """The log-probabilities of the samples' tokens when they come as a prompt; none where the server sends no ids."""
    if not ids or any(token < 0 for one in samples for token in one["tokens"]):
        return []
    whole = [ids + one["tokens"] for one in samples]
    reply = _send(endpoint, whole, 1, {"prompt_logprobs": 0}, temperature=0.0)
    lines = []
    for one, choice in zip(samples, reply.choices, strict=True):
        places = (choice.model_extra.get("prompt_logprobs") or [])[len(ids) :]
        lines.append(
            [
                (place or {}).get(str(token), {}).get("logprob")
                for token, place in zip(one["tokens"], places, strict=False)
            ]
        )
    return lines


def _batch(endpoint: Endpoint, asked: Asked, largest: int, seeded: Sequence[str]) -> dict[str, Any]:
    """The same prompts alone, alone again, and several at once; sent in one request so that they do run together."""
    extra = {**IDS, "ignore_eos": True}
    sizes = [largest] if asked.quick else sorted({min(8, largest), largest})
    rows = []
    ways = (
        (GREEDY, {"temperature": 0.0}, tuple(PROMPTS)),
        (SEEDED, {"temperature": 1.0, "seed": SEED}, tuple(seeded)),
    )
    for how, heat, names in ways:

        def ask(prompts: list[str], heat: dict[str, Any] = heat) -> list[dict[str, Any]]:
            reply = _send(endpoint, prompts, asked.tokens, extra, logprobs=2, **heat)
            return [_sampled(one) for one in reply.choices]

        alone = {name: ask([PROMPTS[name]])[0] for name in names}
        among: dict[str, dict[str, list[dict[str, Any]]]] = {
            name: {AGAIN: ask([PROMPTS[name]])} for name in names
        }
        for size in sizes if names else ():
            crowd = list(itertools.islice(itertools.cycle(names), size))
            for name, one in zip(crowd, ask([PROMPTS[name] for name in crowd]), strict=True):
                among[name].setdefault(f"{size} at once", []).append(one)
        rows += [{"prompt": name, "how": how, "alone": alone[name], "among": among[name]} for name in names]
    return {"rows": rows}


def _throughput(endpoint: Endpoint, asked: Asked) -> dict[str, Any]:
    """The same groups asked in three ways, in turn and back, so that a slow change of the machine meets all alike."""
    order = (ONE_REQUEST, N_REQUESTS, UNSHARED)
    rows = []
    with ThreadPoolExecutor(asked.groups * asked.samples) as pool:
        for turn in range(asked.rounds):
            for arm in order if turn % 2 == 0 else reversed(order):
                # Each turn has prompts of its own, else it would find those of the turn before in the cache.
                prompts = [
                    f"Report {turn} {arm} {number}: {PROMPTS['long']}" for number in range(asked.groups)
                ]
                rows.append({"arm": arm, "round": turn, **_timed(endpoint, asked, arm, prompts, pool)})
    return {"groups": asked.groups, "samples": asked.samples, "rows": rows}


def _timed(
    endpoint: Endpoint, asked: Asked, arm: str, prompts: Sequence[str], pool: ThreadPoolExecutor
) -> dict[str, Any]:
    def ask(prompt: str, n: int, salt: str) -> Any:  # noqa: ANN401 - the SDK's answer
        extra = {"ignore_eos": True, **({"cache_salt": salt} if salt else {})}
        return _send(endpoint, prompt, asked.tokens, extra, n=n, temperature=1.0, logprobs=0)

    if arm == ONE_REQUEST:
        jobs = [(prompt, asked.samples, "") for prompt in prompts]
    else:
        # A salt of its own keeps a request's prefix to itself, and changes nothing else of it.
        salted = arm == UNSHARED
        jobs = [
            (prompt, 1, f"{prompt[:40]} {each}" if salted else "")
            for prompt in prompts
            for each in range(asked.samples)
        ]
    before, began = _prefix(endpoint), time.perf_counter()
    replies = list(pool.map(lambda one: ask(*one), jobs))
    seconds, after = time.perf_counter() - began, _prefix(endpoint)
    told = [None if None in pair else pair[1] - pair[0] for pair in zip(before, after, strict=True)]  # type: ignore[operator]
    return {
        "seconds": seconds,
        "tokens": sum(reply.usage.completion_tokens for reply in replies),
        "prompt_tokens": replies[0].usage.prompt_tokens,
        "queries": told[0],
        "hits": told[1],
    }


def _prefix(endpoint: Endpoint) -> tuple[float | None, float | None]:
    """Prompt tokens looked up in the prefix cache so far, and found; None where they are not counted."""
    try:
        seen = endpoint.metrics()
    except (
        ActionFailed
    ):  # a proxy or another engine has no such page; a server that died shows in the requests
        return None, None
    return seen.total("vllm:prefix_cache_queries_total"), seen.total("vllm:prefix_cache_hits_total")


def _greedy(endpoint: Endpoint, tokens: int) -> dict[str, Any]:
    """One greedy answer to the long prompt.

    Raises:
        ActionFailed: none came.
    """
    import openai  # noqa: PLC0415 - as above

    try:
        reply = _send(
            endpoint, PROMPTS["long"], tokens, {**IDS, "ignore_eos": True}, temperature=0.0, logprobs=2
        )
    except openai.APIError as why:
        raise ActionFailed(f"{type(why).__name__}: {why}", "an answer", "runbook status") from None
    return _sampled(reply.choices[0])


def _post(endpoint: Endpoint, path: str, body: dict[str, Any] | None = None) -> None:
    """Ask one of the development endpoints.

    Raises:
        ActionFailed: it did not answer 200.
    """
    key = {"Authorization": f"Bearer {endpoint.key}"} if endpoint.key else {}
    try:
        # A connection of its own: after an error 500 the server closes the one it came on.
        reply = httpx.post(
            f"{endpoint.url}{path}", json=body, headers=key, timeout=ANSWER_LIMIT_S, trust_env=False
        )
    except httpx.HTTPError as why:
        raise ActionFailed(f"POST {path}: {type(why).__name__}: {why}", "200", "runbook status") from None
    if reply.status_code != httpx.codes.OK:
        raise ActionFailed(
            f"POST {path}: {reply.status_code} {reply.text[:200]}",
            "200",
            "runbook stop, then start it again: an engine whose weights were half loaded dies at the next request",
        )


def _reloaded(endpoint: Endpoint, served: Path, other: Path, tokens: int) -> dict[str, Any]:
    """Load ``other`` in place of what is served, see what the prefix cache still gives, reset it, and load back."""

    def load(folder: Path) -> float:
        began = time.perf_counter()
        _post(
            endpoint,
            "/collective_rpc",
            {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}},
        )
        return time.perf_counter() - began

    _post(endpoint, "/reset_prefix_cache")
    # A hybrid model's state is kept from the second time on that a prefix is met, so only the third finds it.
    before, *_ = (_greedy(endpoint, tokens) for _ in range(3))
    seconds = load(other)
    try:
        hits = _prefix(endpoint)[1] or 0.0
        stale = _greedy(endpoint, tokens)
        stale_hits = (_prefix(endpoint)[1] or 0.0) - hits
        _post(endpoint, "/reset_prefix_cache")
        hits = _prefix(endpoint)[1] or 0.0
        fresh = _greedy(endpoint, tokens)
        reset = (_prefix(endpoint)[1] or 0.0) == hits
    finally:
        load(served)
        _post(endpoint, "/reset_prefix_cache")
    back = _greedy(endpoint, tokens)
    return {
        "seconds": seconds,
        "stale_hits": stale_hits,
        "reset": reset,
        "answers": {"before": before, "stale": stale, "fresh": fresh, "back": back},
    }


def _asleep_and_awake(endpoint: Endpoint, ctx: Context, tokens: int) -> dict[str, Any]:
    """Level 1: on a GPU the weights go to RAM and the KV cache is given up; awake, the answer must be the same."""
    before, memory = _greedy(endpoint, tokens), [_used_mib(ctx)]
    began = time.perf_counter()
    _post(endpoint, "/sleep?level=1")
    sleep_s = time.perf_counter() - began
    try:
        asleep = "true" in endpoint.get("/is_sleeping")[1]
        memory.append(_used_mib(ctx))
        held = _is_held(endpoint)
    finally:
        began = time.perf_counter()
        _post(endpoint, "/wake_up")
        wake_s = time.perf_counter() - began
    memory.append(_used_mib(ctx))
    return {
        "sleep_s": sleep_s,
        "wake_s": wake_s,
        "asleep": asleep,
        "held": held,
        "memory_mib": memory,
        "before": before,
        "after": _greedy(endpoint, tokens),
    }


def _is_held(endpoint: Endpoint) -> bool:
    """True when a request to a sleeping server is neither answered nor refused for a second."""
    import openai  # noqa: PLC0415 - as above

    hurried = endpoint.client.with_options(timeout=HELD_S)
    try:
        hurried.completions.create(model=endpoint.model, prompt="held", max_tokens=1)
    except openai.APITimeoutError:
        return True
    except openai.APIError:
        return False
    return False


def _used_mib(ctx: Context) -> int | None:
    """Memory in use on the first GPU, in MiB; None without one."""
    if ctx.stack.device != "cuda":
        return None
    argv = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    lines = LiveProbe(ctx.work, ctx.stack.name, ctx.python).run(argv).out.split()
    return int(lines[0]) if lines and lines[0].isdecimal() else None
