"""CUDA: the libcuda that a program gets, found as the loader and as Triton find it."""

from runbook import tables
from runbook.checks import libraries
from runbook.checks.libraries import LIBCUDA, PATHS, Copy
from runbook.checks.readings import GPU_QUESTION, gpus
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, unknown, warn
from runbook.parse import loader
from runbook.pins import at_least
from runbook.probe import Probe

MOUNT_IT = Fix(
    "Give the loader the driver's library: into a container the toolkit mounts it, elsewhere the driver package brings it",
    ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...", "sudo ldconfig"),
)
REBOOT = Fix("Reboot, so that module and library are of one version", ("sudo reboot",), Risk.REBOOT)


@check(
    "CUDA-007",
    layer=Layer.CUDA,
    title="The libcuda that the loader finds is the driver's own",
    why="A stub, or a cuda-compat library older than the driver, takes its place: torch then sees no GPU (error 34, 803 or 804).",
    source=Source(
        "CUDA compatibility: forward compatibility",
        "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html",
        "2026-11-30",
    ),
    requires=("DRIVER-001",),
)
def own_libcuda(host: Probe) -> Answer:
    """The first libcuda.so.1 on LD_LIBRARY_PATH, in the cache or in a default folder, against the kernel module."""
    driver, copies = libraries.driver(host), libraries.libcuda(host)
    if not copies:
        seen = (Evidence(LIBCUDA, "not found", libraries.CACHE), driver)
        if libraries.cache(host) is None:
            return unknown(f"{libraries.CACHE} gave no list of libraries", *seen)
        return fail(*seen, fix=MOUNT_IT)
    return _judge(host, copies, driver)


def _judge(host: Probe, copies: tuple[Copy, ...], driver: Evidence) -> Answer:
    """What the first copy is, and whether the right one stands behind it."""
    first = copies[0]
    seen = (
        Evidence(LIBCUDA, first.path, first.origin),
        Evidence("found through", first.how, first.origin),
        Evidence("its version", first.version, first.origin),
        driver,
    )
    if first.kind == "stub":
        return fail(*seen, fix=_aside(first), reason="a stub is for linking only: cuInit answers 34")
    if driver.value is None or first.version is None:
        return unknown("the library's name or the driver names no version", *seen)
    if first.version == driver.value:
        return _for_triton(host, copies, seen)
    if first.kind == "compat" and at_least(first.version, str(driver.value)):
        return _forward(host, first, str(driver.value), seen)
    if first.kind == "compat":
        why = "a cuda-compat library older than the driver shadows the driver's own (error 803)"
    elif any(one.version == driver.value for one in copies[1:]):
        why = "a libcuda of another driver is found before the right one (error 803)"
    else:
        why = "library and kernel module are of two drivers (error 803); DRIVER-003 says more"
    fix = REBOOT if "two drivers" in why else _aside(first)
    return fail(*seen, fix=fix, reason=why)


def _aside(copy: Copy) -> Fix:
    """How this copy is taken out of the loader's way."""
    folder = loader.folder(copy.path)
    if copy.how == PATHS:
        return Fix(f"Take {folder} off LD_LIBRARY_PATH", ("unset LD_LIBRARY_PATH",), Risk.RESTART)
    return Fix(
        f"Take {folder} out of the loader's configuration, or put the driver's folder before it",
        (f"grep -rn {folder} /etc/ld.so.conf.d", "sudo ldconfig"),
        Risk.RESTART,
        "put the line back and run sudo ldconfig",
    )


def _for_triton(host: Probe, copies: tuple[Copy, ...], seen: tuple[Evidence, ...]) -> Answer:
    """Triton runs ldconfig itself, believes it, and looks at LD_LIBRARY_PATH only where the cache knows no libcuda."""
    cache = libraries.cache(host)
    if cache is None:
        return warn(
            *seen, fix=Fix("Say where it lies", (f"export TRITON_LIBCUDA_PATH={loader.folder(copies[0].path)}",)),
            reason="Triton asks /sbin/ldconfig -p for libcuda and gets no answer",
        )  # fmt: skip
    listed = cache.get(LIBCUDA, ())
    served = (
        {one.path for one in copies} & set(listed)
        if listed
        else {one.path for one in copies if one.how == PATHS}
    )
    if served:
        return ok(*seen)
    return fail(
        *seen,
        fix=Fix("Refresh the loader's cache", ("sudo ldconfig",)),
        reason="the loader finds it and Triton does not: the cache that Triton reads knows no libcuda that exists",
    )


def _forward(host: Probe, copy: Copy, driver: str, seen: tuple[Evidence, ...]) -> Answer:
    """A cuda-compat library newer than the driver: served on the cards and the branches NVIDIA lists."""
    cards = [(one.name, (tables.card(one.name) or {}).get("class")) for one in gpus(host)]
    cuda = tables.branch_cuda(copy.version or "")
    allowed = tables.compat_package(cuda, int(driver.split(".", maxsplit=1)[0])) if cuda else None
    seen = (
        *seen,
        Evidence("compat serves", cuda, copy.origin),
        Evidence("listed for this driver branch", allowed),
    )
    refused = [name for name, kind in cards if kind in ("consumer", "desktop")]
    if refused:
        return fail(
            *seen, Evidence("card", refused[0], GPU_QUESTION), fix=_aside(copy),
            reason="forward compatibility is for data-centre cards; this one answers 804",
        )  # fmt: skip
    if allowed == "no":
        return fail(
            *seen, fix=_aside(copy), reason="NVIDIA lists this package as not usable on this driver branch"
        )
    if allowed != "yes" or not cards or any(kind not in ("datacenter", "jetson") for _, kind in cards):
        return warn(*seen, reason="NVIDIA's table does not say that this driver and card serve this package")
    return ok(*seen)


CHECKS = (own_libcuda,)
