"""The pages, and one frozen dataclass of parameters for each: names, types, ranges, help.

papermill only warns about a parameter it does not know and passes a word where a number is meant; we refuse both.
A test holds each notebook's parameters cell to its dataclass.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

from pydantic import ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass as checked

from runbook.errors import BadParameter
from runbook.model import Layer

_STRICT = ConfigDict(extra="forbid", strict=True)

Machine = Annotated[
    str,
    Field(
        description="auto | live | recorded:NAME; auto is $RUNBOOK_MACHINE, else live",
        pattern=r"^(auto|live|recorded:.+)$",
    ),
]
StackName = Annotated[str, Field(description="auto, or the name of a stack")]
Target = Annotated[
    str, Field(description="interpreter to examine instead of the stack's own; empty for that one")
]
OutDir = Annotated[str, Field(description="folder for findings; empty to write none", pattern=r"^(/.*)?$")]
Strict = Annotated[bool, Field(description="raise at the gate when a finding is fail or unknown")]
Apply = Annotated[bool, Field(description="carry plans out; they only touch the workspace")]
ModelName = Annotated[
    str, Field(description="auto, a generated model, a folder, or a hub id such as Qwen/Qwen3.5-4B")
]
Deadline = Annotated[int, Field(description="seconds the server may take to become ready", ge=10, le=7200)]
Keep = Annotated[bool, Field(description="leave the server running for the next page")]
Profile = Annotated[
    str,
    Field(
        description="baseline | first-light | throughput | latency | rl-rollout | text-only",
        pattern=r"^(baseline|first-light|throughput|latency|rl-rollout|text-only)$",
    ),
]
LogFile = Annotated[
    str, Field(description="a log to read instead of that of this workspace's server; a path from the root")
]
View = Annotated[
    str,
    Field(description="text | widgets, which adds a live view of the server", pattern=r"^(text|widgets)$"),
]


@checked(frozen=True, config=_STRICT)
class Common:
    """What every page takes."""

    machine: Machine = "auto"
    stack: StackName = "auto"
    target: Target = ""
    out_dir: OutDir = ""
    strict: Strict = True


@checked(frozen=True, config=_STRICT)
class Build(Common):
    """A page that can build something in the workspace."""

    apply: Apply = False


@checked(frozen=True, config=_STRICT)
class Model(Build):
    """A page that is about a checkpoint."""

    model: ModelName = "auto"


@checked(frozen=True, config=_STRICT)
class Server(Model):
    """A page that starts a server."""

    profile: Profile = "baseline"
    deadline_s: Deadline = 900
    keep_server: Keep = False
    ui: View = "text"


@checked(frozen=True, config=_STRICT)
class Triage(Common):
    """The page that reads logs."""

    log: LogFile = ""


@dataclass(frozen=True)
class PageSpec:
    """One notebook: its layers, its parameters, and how long one of its cells may run (seconds)."""

    name: str
    layers: tuple[Layer, ...]
    params: type[Common]
    cell_deadline_s: int


PAGES = (
    PageSpec("00_start", (Layer.START,), Common, 120),
    PageSpec("01_host", (Layer.HOST, Layer.DRIVER), Common, 120),
    PageSpec("02_cuda", (Layer.CUDA,), Common, 120),
    PageSpec("03_python", (Layer.PY,), Build, 1800),
    PageSpec("04_torch", (Layer.TORCH,), Common, 300),
    PageSpec("05_flash_attn", (Layer.FLASH,), Common, 300),
    PageSpec("06_vllm", (Layer.ARCH, Layer.ABI, Layer.VLLM), Common, 300),
    PageSpec("07_model", (Layer.MODEL,), Model, 3600),
    PageSpec("08_warmup", (Layer.WARM,), Server, 7260),
    PageSpec("09_serving", (Layer.SERVE,), Server, 7260),
    PageSpec("11_triage", (Layer.TRIAGE,), Triage, 600),
)


def page_spec(name: str) -> PageSpec:
    """The page of that name; ``04_torch``, ``04`` and ``torch`` all name one.

    Raises:
        BadParameter: there is no such page.
    """
    for one in PAGES:
        number, _, word = one.name.partition("_")
        if name.removesuffix(".ipynb") in (one.name, number, word):
            return one
    raise BadParameter(f"no page {name!r}", ", ".join(one.name for one in PAGES), "name one of these")


def names(spec: PageSpec) -> tuple[str, ...]:
    """Names of a page's parameters."""
    return tuple(one.name for one in dataclasses.fields(spec.params))


def validated(spec: PageSpec, given: Mapping[str, Any]) -> Common:
    """The page's parameters, checked.

    Raises:
        BadParameter: an unknown name, a wrong type or a value out of range; says which and what was expected.
    """
    unknown = sorted(set(given) - set(names(spec)))
    if unknown:
        raise BadParameter(
            f"page {spec.name} has no parameter {', '.join(unknown)}",
            f"one of {', '.join(names(spec))}",
            "check the spelling",
        )
    try:
        made = spec.params(**given)
    except ValidationError as why:
        raise _refused(spec, why) from why
    return made


def _refused(spec: PageSpec, why: ValidationError) -> BadParameter:
    first = why.errors()[0]
    name = str(first["loc"][0])
    field = next(one for one in dataclasses.fields(spec.params) if one.name == name)
    words = [
        each.description
        for each in get_type_hints(spec.params, include_extras=True)[name].__metadata__
        if getattr(each, "description", None)
    ]
    expected = first["msg"][0].lower() + first["msg"][1:]
    return BadParameter(
        f"parameter {name}={first['input']!r} of page {spec.name}: {expected}",
        words[0],
        f"the default is {field.default!r}",
    )


def from_words(spec: PageSpec, words: Mapping[str, str]) -> dict[str, Any]:
    """Command-line words into the types of a page's parameters; names it does not have are left out.

    Raises:
        BadParameter: a word that cannot be read as the parameter's type.
    """
    defaults = {one.name: one.default for one in dataclasses.fields(spec.params)}
    read: dict[str, Any] = {}
    for name, word in words.items():
        default = defaults.get(name, dataclasses.MISSING)
        if default is dataclasses.MISSING:
            continue
        if isinstance(default, bool):
            if word.lower() not in ("true", "false"):
                raise BadParameter(
                    f"parameter {name}={word!r} of page {spec.name}",
                    "true or false",
                    f"the default is {default}",
                )
            read[name] = word.lower() == "true"
        elif isinstance(default, int):
            try:
                read[name] = int(word)
            except ValueError as why:
                raise BadParameter(
                    f"parameter {name}={word!r} of page {spec.name}",
                    "a whole number",
                    f"the default is {default}",
                ) from why
        else:
            read[name] = word
    return read
