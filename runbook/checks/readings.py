"""Readings that several checks share, each with the question by which a reader repeats it."""

from runbook import pins
from runbook.model import Evidence, Fix, Risk
from runbook.parse import binaries as parse_binaries
from runbook.parse import links as parse_links
from runbook.parse import nvidia, python_env
from runbook.pins import Stack
from runbook.probe import Probe
from runbook.probes import questions

GPU_QUESTION = questions.run(nvidia.ARGV)
USAGE = 2  # exit code of ``runbook.binaries`` for a folder that is none
NO_GPU = "there is no NVIDIA GPU on this machine"
NO_CARD = "nvidia-smi names no card; DRIVER-002 says more"
NO_VLLM = "vLLM is not installed in the target; VLLM-001 says more"
DIST_INFO = "{site}/*.dist-info"
REBUILD = Fix(
    "Build the target again from its lock", ("runbook env build",), Risk.REBUILD, "runbook env rollback"
)
BINARIES = questions.run(parse_binaries.ARGV)

__all__ = [
    "BINARIES",
    "DIST_INFO",
    "GPU_QUESTION",
    "NO_CARD",
    "NO_GPU",
    "NO_VLLM",
    "REBUILD",
    "binaries",
    "distributions",
    "gpus",
    "links",
    "need",
    "stack_of",
    "unread",
]


def gpus(host: Probe) -> tuple[nvidia.Gpu, ...]:
    """GPUs as nvidia-smi lists them; empty when it is missing or fails."""
    ran = host.run(nvidia.ARGV)
    return nvidia.gpus(ran.out) if ran.ok else ()


def stack_of(host: Probe) -> Stack:
    """The stack in question; the machine's first when no target was named."""
    return pins.stack(host.stack if host.stack in pins.names() else pins.stacks_for(host)[0])


def distributions(host: Probe) -> dict[str, str]:
    """Packages of the target environment, by their dist-info folders."""
    return python_env.distributions(host.glob(DIST_INFO))


def need(name: str, value: str, stack: Stack) -> Evidence:
    """What the stack asks, with the manifest as origin."""
    return Evidence(name, value, f"stacks/{stack.name}/manifest.toml")


def binaries(host: Probe) -> tuple[parse_binaries.Binary, ...] | None:
    """Every file of the target with machine code or links to torch and CUDA; None when they could not be read.

    Empty when the environment holds none, as a pure Python one does.
    """
    ran = host.run(parse_binaries.ARGV, parse_binaries.TIMEOUT_S)
    return parse_binaries.binaries(ran.out) if ran.ok else None


def unread(host: Probe) -> tuple[str, str, str]:
    """Why ``binaries`` or ``links`` gave None: what was seen, what was expected, what to do."""
    ran = host.run(parse_binaries.ARGV, parse_binaries.TIMEOUT_S)
    seen = "the libraries of the target could not be read"
    if ran.rc == USAGE and not ran.timed_out:
        return (
            f"{seen}: its interpreter did not say where its packages are",
            "a Python interpreter that starts",
            "name one with --target",
        )
    last = ran.err.strip().splitlines()[-1:]
    why = (
        [f"no end within {parse_binaries.TIMEOUT_S:.0f} s"]
        if ran.timed_out
        else [f"the reader was killed by signal {-ran.rc}"]
        if ran.rc < 0
        else last
    )
    return (
        ": ".join([seen, *why]),
        "files that are readable and do not change meanwhile",
        f"try {BINARIES.removeprefix('run ')}",
    )


def links(host: Probe) -> parse_links.Links | None:
    """What every library of the target that touches torch or CUDA needs and does not get; None when it could not be read."""
    ran = host.run(parse_binaries.ARGV, parse_binaries.TIMEOUT_S)
    return parse_links.links(ran.out) if ran.ok else None
