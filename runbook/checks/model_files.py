"""MODEL: are the files whole, the ones they should be, and all of one revision?"""

from runbook.checkpoint.faults import Fault
from runbook.checks.model_readings import EXAMINE, FETCH, FILES, examined, judged, unread, verdict
from runbook.model import Answer, Cost, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown
from runbook.parse import checkpoint
from runbook.parse.checkpoint import Checkpoint
from runbook.probe import Probe
from runbook.probes import questions

NEEDED = ("config.json", "tokenizer.json")
HASH = questions.run(checkpoint.HASH)
SOURCE_FORMAT = Source(
    "safetensors: the format", "https://huggingface.co/docs/safetensors/index", "2026-11-30"
)
SOURCE_HUB = Source(
    "huggingface_hub: how files are cached and named",
    "https://huggingface.co/docs/huggingface_hub/guides/manage-cache",
    "2026-11-30",
)
INDEX = "model.safetensors.index.json"
NO_WORD = "nothing in the folder says what the hub gave: generated here, copied, or fetched by another tool"
WITH_CONFIG = Fix(
    "Take config and weights of one and the same checkpoint; nobody needs to edit the config", risk=Risk.DATA
)
ANEW = Fix("Fetch the checkpoint anew into an empty folder, with one revision named", risk=Risk.DATA)


@check(
    "MODEL-001",
    layer=Layer.MODEL,
    title="The checkpoint folder holds a config, a tokenizer and weights",
    why="A download that was cut leaves a folder that looks right until the engine is half started.",
    source=Source(
        "transformers: files of a checkpoint",
        "https://huggingface.co/docs/transformers/main/en/models",
        "2026-11-30",
    ),
)
def there(host: Probe) -> Answer:
    """File names of the folder."""
    files = [path.rsplit("/", 1)[1] for path in host.glob(FILES)]
    if not files and not host.has_target:
        return skip("there is no checkpoint here yet (runbook run 07_model makes one; --model names one)")
    weights = [name for name in files if name.endswith(".safetensors")]
    missing = [name for name in NEEDED if name not in files]
    seen = (
        Evidence("files", len(files), f"glob {FILES}"),
        Evidence("weight files", len(weights), f"glob {FILES}"),
        Evidence("missing", " ".join(missing) or "none", f"glob {FILES}"),
    )
    return fail(*seen, fix=FETCH) if missing or not weights else ok(*seen)


@check(
    "MODEL-002",
    layer=Layer.MODEL,
    title="Every weight file is as long as its header says, and the header is sound",
    why="A truncated shard or a git-lfs pointer fails minutes later, with an error that names neither.",
    source=SOURCE_FORMAT,
    requires=("MODEL-001",),
)
def whole(host: Probe) -> Answer:
    """Headers against file sizes, shapes and types against byte ranges; no weight is read."""
    return judged(host, "weights", "weights", _weights, FETCH)


def _weights(found: Checkpoint) -> tuple[Evidence, ...]:
    types = found.table("weights", "types")
    return (
        Evidence("parameters", found.value("weights", "parameters"), EXAMINE),
        Evidence("types", " ".join(types) or "none", EXAMINE),
        Evidence("tensors", found.value("weights", "tensors"), EXAMINE),
        Evidence("files", found.value("weights", "files"), EXAMINE),
        Evidence("bytes read", found.value("weights", "read_bytes"), EXAMINE),
    )


@check(
    "MODEL-011",
    layer=Layer.MODEL,
    title="The weights are those that the config describes: names, shapes, types",
    why="A layer too few, another vocabulary or a type that is not true ends in a stack trace, or in fluent nonsense.",
    source=Source(
        "transformers: Qwen3.5, its classes and their parameters",
        "https://huggingface.co/docs/transformers/model_doc/qwen3_5",
        "2026-11-30",
    ),
    requires=("MODEL-002", "MODEL-012", "MODEL-019"),
)
def described(host: Probe) -> Answer:
    """Each tensor of the headers against the one that config.json calls for."""
    found = examined(host)
    if isinstance(found, Answer):
        return found
    family = found.value("config", "family")
    seen = [
        Evidence("family", family, EXAMINE),
        Evidence("tensors", found.value("weights", "tensors"), EXAMINE),
        Evidence("type in the config", found.value("config", "dtype"), EXAMINE),
    ]
    if family is None and found.part("config"):
        return skip("which tensors this family has is not known here; vLLM will tell", *seen)
    return judged(host, "shapes", "config", lambda _: seen, WITH_CONFIG)


@check(
    "MODEL-012",
    layer=Layer.MODEL,
    title="The index, the shards and their headers name the same tensors",
    why="vLLM loads the files that the index names and nothing else; a tensor outside them keeps random values, or stops the start.",
    source=Source(
        "transformers: sharded checkpoints",
        "https://huggingface.co/docs/transformers/main/en/big_models",
        "2026-11-30",
    ),
    requires=("MODEL-001",),
)
def indexed(host: Probe) -> Answer:
    """model.safetensors.index.json both ways: what it names, and what the files hold. One file needs no index."""
    return judged(host, "index", "weights", _index, FETCH)


def _index(found: Checkpoint) -> tuple[Evidence, ...]:
    there = INDEX in (found.facts.get("files") or ())
    return (
        Evidence("index", "there" if there else "none", EXAMINE),
        Evidence("weight files", found.value("weights", "files"), EXAMINE),
        Evidence("tensors", found.value("weights", "tensors"), EXAMINE),
    )


@check(
    "MODEL-017",
    layer=Layer.MODEL,
    title="Every file has the hash that the hub gave",
    why="A bit that was flipped on the way changes a weight and no length: nothing else can see it.",
    source=SOURCE_HUB,
    cost=Cost.SLOW,
    requires=("MODEL-001",),
)
def hashed(host: Probe) -> Answer:
    """sha256 of each large file, git's sha1 of each small one, against what the download left beside them."""
    found = examined(host)
    if isinstance(found, Answer):
        return found
    if found.value("hub", "skeleton"):
        return skip(
            "the folder holds the headers of its weights only",
            Evidence("skeleton", value=True, origin=EXAMINE),
        )
    if not found.value("hub", "files"):
        return skip(NO_WORD, Evidence("files the hub gave a hash for", found.value("hub", "files"), EXAMINE))
    ran = host.run(checkpoint.HASH, checkpoint.HASH_TIMEOUT_S)
    answer = checkpoint.checkpoint(ran.out) if ran.ok else None
    if answer is None:
        return unread(ran)
    checked = answer.value("hashes", "checked")
    if not checked and not answer.faults:
        return unknown("no file could be compared", Evidence("files compared", checked, HASH))
    same = Evidence("files with the hub's hash", checked, HASH)
    return verdict(answer.faults, [same], FETCH, HASH)


@check(
    "MODEL-018",
    layer=Layer.MODEL,
    title="The files are of one revision, and it is known which",
    why="'main' moves: a folder filled twice holds weights of one day and a tokenizer of another, and cannot be had again.",
    source=SOURCE_HUB,
    requires=("MODEL-001",),
)
def pinned(host: Probe) -> Answer:
    """The revisions that huggingface_hub noted beside the files, or that the folder of its cache bears."""
    found = examined(host)
    if isinstance(found, Answer):
        return found
    revisions = found.table("hub", "revisions")
    seen = (
        Evidence("repository", found.value("hub", "repo") or "not known", EXAMINE),
        Evidence("revision", _revision(found), EXAMINE),
        Evidence("files with a revision", found.value("hub", "files"), EXAMINE),
    )
    if not found.part("hub"):
        return unknown("the examination says nothing of revisions")
    if not revisions:
        return skip(NO_WORD, *seen)
    faults: tuple[Fault, ...] = found.of("hashes")
    return verdict(faults, seen, ANEW, EXAMINE)


def _revision(found: Checkpoint) -> str:
    revisions = found.table("hub", "revisions")
    if found.value("hub", "source") == "modelscope":
        return f"{found.value('hub', 'revision')} on ModelScope, a commit for each file"
    return " ".join(revisions) or "not known"


CHECKS = (there, whole, described, indexed, hashed, pinned)
