"""HOST: system, C library, processor, clock and proxies, against what the stack's wheels and its clients need."""

import datetime

from runbook.checks.readings import need, stack_of
from runbook.model import Answer, Evidence, Fix, Layer, Risk, Source, check, fail, ok, skip, unknown, warn
from runbook.parse import proc
from runbook.parse.numbers import whole
from runbook.pins import at_least
from runbook.probe import Probe

MANYLINUX = Source(
    "PEP 600: manylinux_X_Y tags name a glibc floor", "https://peps.python.org/pep-0600/", "2026-11-30"
)
OS_RELEASE = "/etc/os-release"
# Distributions whose C library is musl, by their ID in os-release.
MUSL = ("alpine", "chimera", "postmarketos")
# Certificates outlive few such spans: a clock so far ahead of the facts is wrong, or this runbook very old.
FAR_AHEAD_DAYS = 5 * 365


@check(
    "HOST-001",
    layer=Layer.HOST,
    title="The machine is Linux on x86-64",
    why="The locks pin wheels for this platform only; elsewhere an installer would look for source and fail late.",
    source=MANYLINUX,
)
def platform(host: Probe) -> Answer:
    """``uname -srm``."""
    ran = host.run(["uname", "-srm"])
    words = ran.out.split()
    fields = 3
    if len(words) != fields:
        return unknown("uname gave no answer that can be read")
    system, release, arch = words
    seen = (
        Evidence("system", f"{system} {arch}", "run uname -srm"),
        Evidence("kernel", release, "run uname -srm"),
    )
    if (system, arch) == ("Linux", "x86_64"):
        return ok(*seen)
    if (system, arch) == ("Linux", "aarch64"):
        return fail(
            *seen,
            fix=Fix(
                "Build an environment by hand and have it examined",
                ("runbook check --target PYTHON",),
                Risk.NONE,
            ),
            reason="vLLM and torch publish wheels for aarch64, but this runbook has no lock of them yet",
        )
    return fail(
        *seen, fix=Fix("Run on a Linux x86-64 machine; the lock for this platform does not exist yet")
    )


@check(
    "HOST-002",
    layer=Layer.HOST,
    title="The C library is as new as the stack's wheels ask",
    why="pip refuses a wheel whose manylinux tag is newer than glibc, or worse, takes an older release without a word.",
    source=MANYLINUX,
)
def glibc(host: Probe) -> Answer:
    """``getconf GNU_LIBC_VERSION`` against the highest manylinux tag among all wheels of the lock."""
    stack = stack_of(host)
    pin = stack.pin("glibc")
    have = proc.glibc(host.run(["getconf", "GNU_LIBC_VERSION"]).out)
    about = proc.os_release(host.read_text(OS_RELEASE))
    name = about.get("PRETTY_NAME") or about.get("NAME")
    seen = (
        Evidence("system", name, f"read {OS_RELEASE}"),
        Evidence("glibc", have, "run getconf GNU_LIBC_VERSION"),
    )
    if pin is None:
        return unknown("the stack names no glibc", *seen)
    floor = pin.version.lstrip(">=")
    evidence = (*seen, need("needed", floor, stack))
    image = Fix(
        f"Use a distribution with glibc {floor} or newer, or a container that has it", risk=Risk.REBUILD
    )
    if have is None and about.get("ID") in MUSL:
        return fail(*evidence, fix=image, reason="its C library is musl; no manylinux wheel installs there")
    if have is None:
        return unknown("no glibc version could be read (musl systems have none)", *evidence)
    return ok(*evidence) if at_least(have, floor) else fail(*evidence, fix=image)


@check(
    "HOST-003",
    layer=Layer.HOST,
    title="The processor has the instructions that vLLM's CPU build uses",
    why="Without them the extension ends with 'Illegal instruction' and no Python traceback.",
    source=Source(
        "vLLM: CPU installation, supported instruction sets",
        "https://docs.vllm.ai/en/stable/getting_started/installation/cpu/",
        "2026-11-30",
    ),
)
def instructions(host: Probe) -> Answer:
    """``/proc/cpuinfo`` flags: AVX2 at least, AVX-512 for the quick kernels."""
    cpuinfo = host.read_text("/proc/cpuinfo")
    flags = proc.cpu_flags(cpuinfo)
    if not flags:
        return unknown("no flags line in /proc/cpuinfo")
    useful = [name for name in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16") if name in flags]
    seen = (
        Evidence("processor", proc.cpu_name(cpuinfo), "read /proc/cpuinfo"),
        Evidence("has", " ".join(useful) or "none of them", "read /proc/cpuinfo"),
    )
    if stack_of(host).device != "cpu":
        return skip("the stack computes on a GPU", *seen)
    if "avx2" not in flags:
        return fail(*seen, fix=Fix("Use a machine with AVX2 (x86-64-v3), or a GPU stack"))
    if "avx512f" not in flags:
        return warn(*seen, reason="AVX2 only: it works, without the AVX-512 kernels and so slower")
    return ok(*seen)


@check(
    "HOST-008",
    layer=Layer.HOST,
    title="lscpu is there for vLLM's CPU build",
    why="The engine asks it for cores and NUMA nodes; without it both CPU releases die at start.",
    source=Source("measured on both CPU stacks", "docs/measurements.md", "2026-11-30"),
)
def lscpu(host: Probe) -> Answer:
    """``lscpu --version``; small container images often lack it."""
    ran = host.run(["lscpu", "--version"])
    seen = Evidence("lscpu", None if ran.missing else ran.out.strip(), "run lscpu --version")
    if stack_of(host).device != "cpu":
        return skip("the stack computes on a GPU", seen)
    if ran.ok:
        return ok(seen)
    return fail(seen, fix=Fix("Install it", ("sudo apt-get install util-linux",), Risk.NONE))


@check(
    "HOST-015",
    layer=Layer.HOST,
    title="The clock does not stand before the day the stack's facts were read",
    why="A clock that is behind makes every certificate 'not yet valid', and downloads fail with an error about TLS.",
    source=Source(
        "RFC 5280, 4.1.2.5: a certificate is valid from a day on, up to a day",
        "https://www.rfc-editor.org/rfc/rfc5280#section-4.1.2.5",
        "2026-11-30",
    ),
)
def clock(host: Probe) -> Answer:
    """``date +%s`` against the newest pin; who keeps the time is shown and not judged, a container cannot see it."""
    stack = stack_of(host)
    seconds = whole(host.run(["date", "+%s"]).out)
    newest = max(datetime.date.fromisoformat(pin.read) for pin in stack.pins)
    if seconds is None or seconds > datetime.datetime.max.replace(tzinfo=datetime.timezone.utc).timestamp():
        return unknown("date gave no number of seconds that can be read")
    today = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).date()
    kept = host.glob("/run/systemd/timesync/synchronized") + host.glob("/run/chrony/chronyd.pid")
    seen = (
        Evidence("today", today.isoformat(), "run date +%s"),
        need("newest fact", newest.isoformat(), stack),
        Evidence(
            "kept by", kept[0].split("/")[-2] if kept else "nobody seen", "glob /run/chrony/chronyd.pid"
        ),
    )
    keep = Fix("Set it, and have it kept", ("sudo timedatectl set-ntp true",), Risk.NONE)
    # A day of grace: dates of facts are local ones, and the earth has time zones.
    if today < newest - datetime.timedelta(days=1):
        return fail(*seen, fix=keep)
    if (today - newest).days > FAR_AHEAD_DAYS:
        return warn(*seen, fix=keep, reason="the clock is years ahead, or these facts are years old")
    return ok(*seen)


def _set(host: Probe, name: str) -> str | None:
    """A proxy variable as Python's clients take it: small letters win over capitals, and empty is not set."""
    small = host.env(name)
    return (host.env(name.upper()) if small is None else small) or None


@check(
    "HOST-016",
    layer=Layer.HOST,
    title="Requests to a server on this machine do not go to a proxy",
    why="A client that sends 127.0.0.1 to the company's proxy gets a 403 or a 502 while the server is healthy.",
    source=Source(
        "HTTPX: environment variables, HTTP_PROXY and NO_PROXY",
        "https://www.python-httpx.org/environment_variables/",
        "2026-11-30",
    ),
)
def proxies(host: Probe) -> Answer:
    """The variables as httpx (the openai SDK), requests and curl read them; https_proxy is not for plain HTTP."""
    taken = [name for name in ("http_proxy", "all_proxy") if _set(host, name)]
    exempt = {word.strip().lower() for word in (_set(host, "no_proxy") or "").split(",")} - {""}
    missing = [name for name in ("127.0.0.1", "localhost") if name not in exempt]
    seen = (
        # A proxy's address may hold a password: it is not shown.
        Evidence(
            "proxy for plain HTTP", " ".join(taken) or "none", f"env {taken[0] if taken else 'http_proxy'}"
        ),
        Evidence("not through it", " ".join(sorted(exempt)) or "nothing", "env no_proxy"),
    )
    if not taken or "*" in exempt or not missing:
        return ok(*seen)
    wide = [word for word in exempt if word.startswith("127.") and "/" in word]
    reason = f"{' and '.join(missing)} not exempt"
    if wide:
        reason += f"; {wide[0]} is a range, which requests and curl read and httpx does not"
    return warn(
        *seen,
        fix=Fix(
            "Exempt this machine, in both spellings",
            ('export no_proxy="${no_proxy:+$no_proxy,}127.0.0.1,localhost" NO_PROXY="$no_proxy"',),
            Risk.NONE,
        ),
        reason=reason,
    )


CHECKS = (platform, glibc, instructions, lscpu, clock, proxies)
