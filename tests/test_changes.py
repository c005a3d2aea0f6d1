"""Changes between two sets of packages: the one that breaks a start comes first, and says why."""

import pytest

from runbook.changes import Kind, package_changes
from runbook.tables import rows

WORKED = {
    "torch": "2.11.0+cu130",
    "vllm": "0.19.1",
    "Requests": "2.33.0",
    "nvidia-nccl-cu13": "2.29.7",
    "idna": "3.11",
}
BROKE = {
    "torch": "2.10.0+cu128",
    "vllm": "0.19.1",
    "requests": "2.34.0",
    "nvidia-nccl-cu12": "2.27.5",
    "zipp": "3.23.0",
}


def test_the_swap_of_torch_comes_first_with_both_cudas_named_and_the_tail_last() -> None:
    found = package_changes(WORKED, BROKE)
    assert [one.text() for one in found] == [
        "torch 2.11.0+cu130 -> 2.10.0+cu128",
        "nvidia-nccl-cu13 2.29.7 -> nvidia-nccl-cu12 2.27.5",
        "requests 2.33.0 -> 2.34.0",
        "- idna 3.11",
        "+ zipp 3.23.0",
    ]
    assert found[0].why.startswith("CUDA 13.0 -> CUDA 12.8; every compiled extension")
    assert [one.decides for one in found] == [True, True, False, False, False]
    assert [one.kind for one in found] == [Kind.SWAPPED, Kind.SWAPPED, Kind.SWAPPED, Kind.REMOVED, Kind.ADDED]


def test_nothing_changes_where_only_the_spelling_of_names_differs() -> None:
    assert package_changes({"Foo_Bar.baz": "1"}, {"foo-bar-baz": "1"}) == []


def test_the_same_torch_from_another_index_is_not_called_another_build() -> None:
    (one,) = package_changes({"torch": "2.10.0+cu128"}, {"torch": "2.10.0"})
    assert one.why == "the same release from another index, CUDA 12.8 as before"
    (other,) = package_changes({"torch": "2.10.0"}, {"torch": "2.10.0+cpu"})
    assert other.why.startswith("CUDA 12.8 -> no CUDA; every compiled extension")


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("1.9", "1.10", "newer release"),
        ("2.0", "1.10", "older major release"),
        ("1.0", "1.0.0", "two spellings of one version"),
        ("not a version", "1", ""),
        ("1", "\x1b[2J\udcff", ""),
    ],
)
def test_the_way_a_version_went_is_said_where_it_can_be_read(old: str, new: str, word: str) -> None:
    (one,) = package_changes({"foo": old}, {"foo": new})
    assert one.why == word
    assert not one.decides


def test_what_serves_is_missed_and_what_is_new_displaces_nothing() -> None:
    found = package_changes({"vllm": "0.19.1"}, {"flash-attn": "2.8.3"})
    assert [(one.name, one.decides) for one in found] == [("vllm", True), ("flash-attn", False)]


def test_each_row_of_suspects_is_reached_by_some_name() -> None:
    """A pattern that stands behind a wider one would never be taken."""
    names = [row["package"].replace("*", "x") for row in rows("suspects")]
    reasons = {one.name: one.why for one in package_changes(dict.fromkeys(names, "1"), {})}
    assert reasons == {name: row["gone"] for name, row in zip(names, rows("suspects"), strict=True)}
