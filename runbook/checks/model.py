"""MODEL: does this vLLM know the checkpoint, and what is it known not to load?"""

from runbook.checks.model_readings import CONFIG, EXAMINE, FETCH, config_json, examined
from runbook.checks.readings import DIST_INFO, distributions, stack_of
from runbook.model import (
    Answer,
    Cost,
    Evidence,
    Fix,
    Layer,
    Risk,
    Source,
    Verdict,
    check,
    fail,
    ok,
    skip,
    unknown,
)
from runbook.probe import Probe
from runbook.probes import questions

REGISTRY = "{site}/vllm/model_executor/models/registry.py"
METHODS = "{site}/vllm/model_executor/layers/quantization/__init__.py"
TRANSFORMERS = "{site}/transformers"
ALIASES = {"auto-round": "inc"}  # a method -> the name under which vLLM lists it
BACKENDS_SINCE = 5  # transformers' major version with TokenizersBackend
OTHER_FORMAT = Fix(
    "Take the checkpoint in a quantisation that this vLLM lists, or the plain one", risk=Risk.DATA
)
TOKENIZER = Fix(
    "Restore the tokenizer files of the original repository, or take transformers 5", risk=Risk.DATA
)
LIMIT_MODEL = "{work}/models/tiny-qwen3.5"
LIMIT_STACK = "vllm-0.19.1-cpu"


@check(
    "MODEL-003",
    layer=Layer.MODEL,
    title="vLLM's registry holds the checkpoint's architecture",
    why="Otherwise the start ends in 'Model architectures ... are not supported for now'.",
    source=Source(
        "vLLM: supported models", "https://docs.vllm.ai/en/stable/models/supported_models/", "2026-11-30"
    ),
    needs_target=True,
    requires=("MODEL-001", "VLLM-001"),
)
def known(host: Probe) -> Answer:
    """``architectures`` of config.json, looked for as text: no import is needed to see a name in the registry."""
    config = config_json(host)
    if config is None:
        return fail(Evidence("config.json", "no JSON object", f"read {CONFIG}"), fix=FETCH)
    named = [str(name) for name in config.get("architectures") or ()]
    asks = [["grep", "-c", f'"{name}"', REGISTRY] for name in named]
    found = [host.run(ask) for ask in asks]
    seen = (
        Evidence("architectures", " ".join(named) or "none", f"read {CONFIG}"),
        Evidence(
            "lines in the registry",
            " ".join(ran.out.strip() for ran in found),
            questions.run(asks[0]) if asks else "",
        ),
    )
    no_such_file = 2
    if any(ran.missing or ran.rc >= no_such_file for ran in found):
        return unknown("the registry is not where this release should have it", *seen)
    if any(ran.ok for ran in found):
        return ok(*seen)
    return fail(
        *seen,
        fix=Fix(
            "Take a vLLM that knows it (Qwen3.5: 0.17.0 or newer), or the official checkpoint, which --language-model-only "
            "serves without images (classes ending in ForCausalLM: a vLLM newer than 0.26)",
            risk=Risk.REBUILD,
        ),
    )


@check(
    "MODEL-007",
    layer=Layer.MODEL,
    title="vLLM 0.19.1's CPU build rejects Qwen3.5 with the known error",
    why="It is why the rehearsal serves Qwen3.5 on 0.32.0; the day this check fails, the rehearsal can use the pinned release.",
    source=Source("measured here by running into it", "docs/measurements.md", "2026-11-30"),
    cost=Cost.SLOW,
    needs_target=True,
    requires=("VLLM-001",),
)
def known_limit(host: Probe) -> Answer:
    """Load the tiny Qwen3.5 in one process of the target and read the root line of what it says."""
    if stack_of(host).name != LIMIT_STACK:
        return skip(f"the limit is one of the stack {LIMIT_STACK}")
    origin = f"inside try_engine path={LIMIT_MODEL}"
    facts = host.inside("try_engine", {"path": LIMIT_MODEL}, timeout_s=240.0)
    if facts.get("loaded"):
        return fail(
            Evidence("loaded", value=True, origin=origin),
            fix=Fix("The limit is gone: let the rehearsal serve Qwen3.5 on this stack and retire this check"),
        )
    root = str(facts.get("root", facts.get("error", "")))
    seen = (Evidence("root line", root, origin), Evidence("raised in", facts.get("where"), origin))
    if root.startswith("ValueError") and str(facts.get("where")).startswith("dispatch_cpu_unquantized_gemm"):
        return ok(*seen)
    return unknown("it fails, but not with the known error", *seen)


@check(
    "MODEL-020",
    layer=Layer.MODEL,
    title="This vLLM loads the checkpoint's quantisation, and this transformers its tokenizer class",
    why="'Unknown quantization method' or 'Tokenizer class TokenizersBackend does not exist' ends the start.",
    source=Source(
        "vLLM: quantization", "https://docs.vllm.ai/en/stable/features/quantization/", "2026-11-30"
    ),
    needs_target=True,
    requires=("MODEL-001", "MODEL-013", "VLLM-001"),
)
def loads(host: Probe) -> Answer:
    """The method among the names in vLLM's source; for transformers 4 the class among those it defines."""
    found = examined(host)
    if isinstance(found, Answer):
        return found
    method, named = found.value("origin", "quantisation"), found.value("tokenizer", "class")
    if not isinstance(method, str) or not isinstance(named, str):
        return unknown("the examination says neither quantisation nor tokenizer class")
    parts = (_quantisation(host, method), _tokenizer_class(host, named))
    seen = [one for part in parts for one in part.evidence]
    worst = next(
        (part for kind in (Verdict.FAIL, Verdict.UNKNOWN) for part in parts if part.verdict is kind), None
    )
    return Answer(worst.verdict, tuple(seen), worst.fix, worst.reason) if worst else ok(*seen)


def _quantisation(host: Probe, method: str) -> Answer:
    seen = Evidence("quantisation", method, EXAMINE)
    if method == "none":
        return ok(seen)
    listed = host.read_text(METHODS)
    if listed is None:
        return unknown("vLLM's list of quantisations is not where this release should have it", seen)
    there = f'"{ALIASES.get(method.lower(), method.lower())}"' in listed
    where = Evidence("in vLLM's list", there, f"read {METHODS}")
    return ok(seen, where) if there else fail(seen, where, fix=OTHER_FORMAT)


def _tokenizer_class(host: Probe, named: str) -> Answer:
    release = distributions(host).get("transformers", "")
    major = release.partition(".")[0]
    seen = (
        Evidence("tokenizer class", named or "not named", EXAMINE),
        Evidence("transformers", release or None, f"glob {DIST_INFO}"),
    )
    if not (major.isascii() and major.isdigit()):
        return unknown("transformers is not installed in the target, or its version is odd", *seen)
    # From 5 on a class that is not known gives way to the one that reads tokenizer.json.
    if named in ("", "PreTrainedTokenizerFast") or int(major) >= BACKENDS_SINCE:
        return ok(*seen)
    if not named.isidentifier():
        return fail(*seen, fix=TOKENIZER)
    ask = ["grep", "-rlwE", "--include=tokenization_*.py", f"class {named}", TRANSFORMERS]
    ran = host.run(ask)
    if ran.missing or ran.timed_out or ran.rc not in (0, 1):
        return unknown("transformers' source could not be searched", *seen)
    defined = Evidence("files that define it", len(ran.out.splitlines()), questions.run(ask))
    return ok(*seen, defined) if ran.ok else fail(*seen, defined, fix=TOKENIZER)


CHECKS = (known, known_limit, loads)
