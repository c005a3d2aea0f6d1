"""The catalogue is held against itself: counts follow from geometry, every value has a source, every wrong name a right one."""

import math
import re
from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest

from runbook import catalogue
from runbook.catalogue import EXISTS, OTHER, WRONG, Model
from runbook.checkpoint import shapes
from runbook.checks import BY_ID
from runbook.errors import BadParameter

MODELS = catalogue.models()
OWN = [one for one in MODELS if not one.values.get("as")]
KEYS = {row["key"] for row in catalogue.rows("sources")}
ISSUE = re.compile(r"issue:[\w.-]+(?:/[\w.-]+)?#\d+", re.ASCII)
FULL, LINEAR = "full_attention", "linear_attention"


def ids(models: Sequence[Model]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("one", models, ids=lambda one: one.id)


def leaves(block: Any, path: str = "") -> list[str]:
    """Dotted paths of the values; a list is one value."""
    if isinstance(block, dict) and block:
        return [leaf for name, inner in block.items() for leaf in leaves(inner, f"{path}.{name}" if path else name)]  # fmt: skip
    return [path]


def test_the_family_is_the_eight_sizes() -> None:
    assert [one.size for one in OWN] == ["0.8B", "2B", "4B", "9B", "27B", "35B-A3B", "122B-A10B", "397B-A17B"]
    assert len(MODELS) == len({one.id for one in MODELS}) == 24
    assert {one.size for one in MODELS} == {one.size for one in OWN}
    assert all(catalogue.find(one.values["as"]) in OWN for one in MODELS if one.values.get("as"))


@ids(OWN)
def test_parameters_follow_from_the_geometry(one: Model) -> None:
    made = shapes.expected(one.config)
    assert made is not None
    vision = sum(math.prod(shape) for name, shape in made.items() if name.startswith("model.visual."))
    mtp = sum(math.prod(shape) for name, shape in made.items() if name.startswith("mtp."))
    total = sum(math.prod(shape) for shape in made.values())
    assert (total, vision, mtp) == (
        one.get("parameters.total"),
        one.get("parameters.vision"),
        one.get("parameters.mtp"),
    )
    assert total - vision - mtp == one.get("parameters.text")
    wide = sum(math.prod(shape) for name, shape in made.items() if name.endswith(shapes.FLOAT32))
    assert wide == one.get("weights.f32_elements")
    assert 2 * total + 2 * wide == one.get("weights.tensor_bytes")


@ids(OWN)
def test_the_cache_follows_from_the_geometry(one: Model) -> None:
    text = one.config["text_config"]
    full, linear = (text["layer_types"].count(kind) for kind in (FULL, LINEAR))
    assert text["layer_types"] == ([LINEAR] * 3 + [FULL]) * full
    assert full + linear == text["num_hidden_layers"]
    kv = 2 * text["num_key_value_heads"] * text["head_dim"] * 2 * full
    assert kv == one.get("cache_derived.kv_bytes_per_token_bf16")
    keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
    values = text["linear_num_value_heads"] * text["linear_value_head_dim"]
    recurrent = text["linear_num_value_heads"] * text["linear_key_head_dim"] * text["linear_value_head_dim"] * 4  # fmt: skip
    conv = (2 * keys + values) * (text["linear_conv_kernel_dim"] - 1) * 2
    assert (recurrent + conv) * linear == one.get("cache_derived.gdn_state_bytes_per_sequence")


@ids(MODELS)
def test_every_value_has_a_source_that_resolves(one: Model) -> None:
    plain = {"id", "size", "kind", "tuning", "precision", "as", "src", "inferred", "notes", "pitfalls", "variants"}  # fmt: skip
    for top, block in one.values.items():
        if top in plain or (isinstance(block, dict) and "same_as" in block):
            continue
        for path in leaves(block, top):
            found: Any = one.values
            for part in path.split("."):
                found = found[part]
            if found is None or (top == "sampling" and isinstance(found, list)):
                continue
            assert one.sources(path), f"{path} = {found!r} has no source"
    for number in range(len(one.values.get("sampling") or ())):
        if isinstance(one.values["sampling"], list):
            assert one.sources(f"sampling.{number}")
    cited = {key for keys in one.values["src"].values() for key in keys}
    assert {key for key in cited if key not in KEYS and not ISSUE.fullmatch(key)} == set()
    # What is said to be inferred or noted must be there to be that.
    for path in (*one.values["inferred"], *one.values["notes"]):
        assert path.split(".")[0] in one.values, path


@ids(MODELS)
def test_what_a_row_names_exists(one: Model) -> None:
    assert catalogue.find(one.id) is one
    assert {each.id for each in catalogue.of(one)} == set(one.values["pitfalls"])
    assert all(catalogue.find(name) for name in one.values.get("variants", ()))
    released = one.get("release_date")
    assert released is None or date.fromisoformat(released) <= date.fromisoformat(catalogue.READ)
    for path in ("minimum_versions.vllm", "minimum_versions.transformers"):
        assert one.get(path) is None or re.fullmatch(r"\d+\.\d+\.\d+", one.get(path))


def test_a_variant_shares_what_it_does_not_say_and_keeps_its_own_nulls() -> None:
    fp8, base = catalogue.find("Qwen/Qwen3.5-27B-FP8"), catalogue.find("Qwen/Qwen3.5-4B-Base")
    assert fp8
    assert base
    assert fp8.get("parameters.total") == 27_781_427_952
    assert fp8.inferred("parameters.total")
    assert fp8.get("weights.tensor_bytes") is None  # not twice a byte too many: nobody knows
    assert fp8.sources("text_config.hidden_size") == ("aic-cfg-27b",)
    assert base.get("chat_template.thinking_default") is None
    assert base.config["text_config"]["hidden_size"] == 2560
    assert fp8.get("no.such.path") is None


@pytest.mark.parametrize("name", ["models", "pitfalls", "names", "floors", "quantisation", "sources"])
def test_rows_say_when_they_were_read(name: str) -> None:
    assert catalogue.rows(name)
    for row in catalogue.rows(name):
        if name != "models":
            assert row["read"] == catalogue.READ, row
        for key in row.get("source", ()):
            assert key in KEYS or ISSUE.fullmatch(key) or key.startswith("pkg:pypi/"), key
    text = (catalogue.FOLDER / f"{name}.json").read_text(encoding="utf-8")
    assert "index_file_id" not in text
    assert "/work/" not in text


@pytest.mark.parametrize("row", catalogue.rows("sources"), ids=lambda row: row["key"])
def test_a_source_says_what_it_is(row: dict[str, Any]) -> None:
    assert row["what"]
    assert row["date"] is None or date.fromisoformat(row["date"]) <= date.fromisoformat(catalogue.READ)
    assert row["where"] is None or isinstance(row["where"], str)


def test_pitfalls_are_seen_by_checks_that_exist() -> None:
    found = catalogue.pitfalls()
    assert [one.id for one in found] == [f"P{number:02}" for number in range(1, 21)]
    for one in found:
        assert set(one.checks) <= set(BY_ID), one.id
        assert bool(one.where) or not one.checks, f"{one.id} says who sees it, and not where"
        assert one.title
        assert one.symptom
    # The one nobody has looked into has no fix; a fix that is made up would be one.
    assert [one.id for one in found if not one.fix] == ["P18"]


@pytest.mark.parametrize(
    ("name", "first", "why"),
    [
        ("Qwen/Qwen3.5-0.5B", "Qwen/Qwen3.5-0.8B", "no 0.5B"),
        ("Qwen/Qwen3.5-1.8B", "Qwen/Qwen3.5-2B", "no 1.8B"),
        ("Qwen/Qwen3.5-7B", "Qwen/Qwen3.5-9B", "Qwen2.5 7B"),
        ("Qwen/Qwen3.5-14B", "Qwen/Qwen3.5-9B", "no 14B"),
        ("Qwen/Qwen3.5-7B-Instruct", "Qwen/Qwen3.5-9B", "no suffix means post-trained"),
        ("Qwen/Qwen3.5-4B-Instruct", "Qwen/Qwen3.5-4B", "no suffix"),
        ("Qwen/Qwen3.5-4B-VL", "Qwen/Qwen3.5-4B", "every size sees pictures"),
        ("Qwen/Qwen3.5-VL-4B", "Qwen/Qwen3.5-4B", "every size sees pictures"),
        ("Qwen/Qwen3.5-9B-AWQ", "Qwen/Qwen3.5-9B", "third-party"),
        ("Qwen/Qwen3.5-4B-GGUF", "Qwen/Qwen3.5-4B", "GGUF"),
        ("Qwen/Qwen3.5-4B-FP8", "Qwen/Qwen3.5-4B", "27B, 35B-A3B"),
        ("Qwen/Qwen3.5-27B-Base", "Qwen/Qwen3.5-27B", "Base exists for"),
        ("Qwen/Qwen3.5-122B-A10B-NVFP4", "nvidia/Qwen3.5-122B-A10B-NVFP4", "is written nvidia/"),
        ("Qwen/Qwen3.5-35B", "Qwen/Qwen3.5-35B-A3B", "written 35B-A3B"),
        ("Qwen/Qwen3.5-235B-A22B", "Qwen/Qwen3.5-397B-A17B", "no 235B-A22B"),
        ("Qwen/Qwen3.5-72B", "Qwen/Qwen3.5-27B", "no 72B"),
        ("Qwen/Qwen3.5-100B", "Qwen/Qwen3.5-122B-A10B", "no 100B"),
        ("Qwen/Qwen3.5-0B", "Qwen/Qwen3.5-0.8B", "no 0B"),
        ("Qwen/Qwen3.5-Plus", "Qwen/Qwen3.5-397B-A17B", "hosted"),
        ("Qwen/Qwen3.5", "Qwen/Qwen3.5-4B", "a size is missing"),
        ("qwen/qwen3.5-4b", "Qwen/Qwen3.5-4B", "is written"),
        ("Qwen3.5-4B", "Qwen/Qwen3.5-4B", "is written"),
        ("Qwen3.5_9B", "Qwen/Qwen3.5-9B", "is written"),
        ("nvidia/Qwen3.5-27B-NVFP4", "Qwen/Qwen3.5-27B", "NVFP4"),
    ],
)
def test_a_wrong_name_is_told_its_nearest(name: str, first: str, why: str) -> None:
    naming = catalogue.nearest(name)
    assert (naming.verdict, naming.nearest[0]) == (WRONG, first)
    assert why in naming.why
    assert all(catalogue.find(each) for each in naming.nearest)
    with pytest.raises(BadParameter) as refused:
        catalogue.demanded(name)
    assert first in refused.value.expected


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Qwen/Qwen3-8B", "not of the Qwen3.5 family"),
        ("Qwen/Qwen3.6-27B", "model_type alone"),
        ("Qwen/Qwen3.50-4B", "not of the Qwen3.5 family"),
        ("someone/finetune", "not of the Qwen3.5 family"),
        ("someone/Qwen3.5-4B-AWQ", "one of Qwen/Qwen3.5-4B"),
        ("someone/Qwen3.5-7B", "by somebody else"),
        ("", "not of"),
        ("a/b/c", "not of"),
        ("\n", "not of"),
    ],
)
def test_a_name_of_another_family_is_allowed_and_told_so(name: str, why: str) -> None:
    naming = catalogue.demanded(name)
    assert naming.verdict == OTHER
    assert why in naming.why


@ids(MODELS)
def test_a_right_name_is_right(one: Model) -> None:
    naming = catalogue.demanded(one.id)
    assert (naming.verdict, naming.model) == (EXISTS, one)


def test_every_wrong_size_on_record_is_refused_for_what_it_looks_like() -> None:
    for row in catalogue.rows("names"):
        for word in row["wrong"] if row["rule"] == "size" else ():
            naming = catalogue.nearest(f"Qwen/Qwen3.5-{word}")
            assert naming.nearest[0] == row["nearest"]
            assert row["because"] in naming.why
