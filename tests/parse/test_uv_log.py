"""What uv wrote when a network, a disk or a file failed it, and how long its steps took: real texts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.parse.uv_log import Kind, Timed, fault, timings

TEXTS = Path(__file__).parents[1] / "data" / "uv"
ALPHA = "alpha==1.0"
# text: kind, package, words of what was seen
REAL: dict[str, tuple[Kind, str, str]] = {
    "connection-refused": (Kind.REFUSED, "", "nothing answers"),
    "refused-retries": (Kind.REFUSED, "", "nothing answers"),
    "dns": (Kind.NAME, "", "name"),
    "timeout": (Kind.TIMEOUT, "", "in time"),
    "sync-stall": (Kind.TIMEOUT, ALPHA, "in time"),
    "http-401": (Kind.LOGIN, "", "401"),
    "http-403": (Kind.FORBIDDEN, "", "403"),
    "http-407": (Kind.LOGIN, "", "proxy"),
    "http-503": (Kind.SERVER, "", "503"),
    "file-403": (Kind.FORBIDDEN, "", "403"),
    "file-500": (Kind.SERVER, "", "500"),
    "sync-file500-retries": (Kind.SERVER, ALPHA, "500"),
    "closed": (Kind.CUT, "", "cut"),
    "sync-cut": (Kind.CUT, ALPHA, "cut"),
    "certificate": (Kind.CERTIFICATE, "", "certificate"),
    "hash-mismatch": (Kind.HASH, ALPHA, "hash"),
    "sync-garbage": (Kind.ARCHIVE, ALPHA, "damaged"),
    "sync-trunczip": (Kind.ARCHIVE, ALPHA, "damaged"),
    "garbage": (Kind.ARCHIVE, "", "damaged"),
    "no-space-cache": (Kind.SPACE, ALPHA, "small/c/"),
    "no-space-target": (Kind.SPACE, ALPHA, "small/v/lib/python3.11/site-packages/alpha/"),
    "no-space-venv": (Kind.SPACE, "", "small/v/bin/activate"),
    "read-only-cache": (Kind.READ_ONLY, "", "small/c"),
    "read-only-venv": (Kind.READ_ONLY, "", "small/v"),
    "read-only-target": (Kind.READ_ONLY, ALPHA, "alpha-1.0.dist-info"),
    "permission-target": (Kind.PERMISSION, "", "perm/v/x"),
    "permission-cache": (Kind.PERMISSION, "", "perm/c"),
    "lock-held": (Kind.LOCK, ALPHA, "lock"),
    "sync-offline": (Kind.OFFLINE, "", "network is off"),
    "offline-empty": (Kind.OFFLINE, "", "network is off"),
    "find-links-only": (Kind.FOLDER, "", "/home/someone/work/empty"),
    "uv-0.9.11-connection-refused": (Kind.REFUSED, "", "nothing answers"),
    "uv-0.9.11-dns": (Kind.NAME, "", "name"),
    "uv-0.9.11-http-401": (Kind.LOGIN, "", "401"),
    "uv-0.9.11-hash-mismatch": (Kind.HASH, ALPHA, "hash"),
    "uv-0.9.11-file-500": (Kind.SERVER, "", "500"),
    "uv-0.9.11-read-only-cache": (Kind.READ_ONLY, "", "small/c"),
}


def text(name: str) -> str:
    return (TEXTS / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REAL)
def test_what_was_to_blame_and_what_to_do(name: str) -> None:
    kind, package, words = REAL[name]
    found = fault(text(name))
    assert found
    assert (found.kind, found.package) == (kind, package)
    assert words in found.seen
    assert found.do
    assert "://" not in found.seen + found.do


def test_every_kind_was_provoked() -> None:
    # NETWORK is what is left when the innermost cause is none of the known ones.
    assert {kind for kind, _, _ in REAL.values()} == set(Kind) - {Kind.NETWORK}
    other = fault("error: error sending request for url (http://127.0.0.1:9/)\n  cause: the wire is wet\n")
    assert other
    assert other.kind is Kind.NETWORK


@pytest.mark.parametrize(
    "name", ["sync-good", "conflict-torch", "conflict-flash-attn-build", "find-links-empty", "html-page"]
)
def test_nothing_to_blame(name: str) -> None:
    assert fault(text(name)) is None


def test_how_long_the_steps_took() -> None:
    assert timings(text("sync-good")) == {
        "resolved": Timed(1, 0.118),
        "prepared": Timed(1, 0.039),
        "installed": Timed(1, 0.004),
        "compiled": Timed(1, 0.287),
    }
    # uv writes minutes from 60 s on (crates/uv/src/commands/mod.rs, elapsed).
    assert timings("Prepared 179 packages in 1m 02s\nAudited 3 packages in 0.12ms\n") == {
        "prepared": Timed(179, 62.0),
        "audited": Timed(3, 0.0001),
    }
    assert timings("Prepared many packages in no time\nInstalled 1 package in a while\n") == {}


@given(st.text())
def test_odd_text_never_raises(odd: str) -> None:
    found = fault(odd)
    assert found is None or (found.seen and found.do)
    assert isinstance(timings(odd), dict)
