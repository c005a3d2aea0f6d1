"""The memory planner: held against what real starts of vLLM logged, and against arithmetic that needs no start."""

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook import catalogue, pins, tables
from runbook.checkpoint import headers, shapes
from runbook.errors import BadParameter
from runbook.memory import cache, devices, geometry, plan, render, runs, stacked, subject, weights
from runbook.memory.cache import Choice
from runbook.memory.overhead import GIB
from runbook.memory.plan import CPU, CUDA, Ask, Device

H200 = Device(CUDA, 150109880320, "NVIDIA H200", 132)
SMALL = Device(CUDA, 24 * GIB, "a card of 24 GiB", 128)
MAKE = Path(__file__).parents[1] / "runbook" / "inside" / "make_model.py"
EIGHT = [one for one in catalogue.models() if one.precision == "bf16" and "Base" not in one.id]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("tiny")

    def made(kind: str) -> Path:
        out = folder / kind
        if not out.exists():
            subprocess.run(
                [sys.executable, str(MAKE), "--kind", kind, "--out", str(out)],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        return out

    return made


def config_of(model: str, tiny: Callable[[str], Path]) -> dict[str, Any]:
    known = catalogue.find(model)
    if known is not None:
        return known.config
    config: dict[str, Any] = json.loads((tiny(model) / "config.json").read_text())
    return config


def published(name: str) -> plan.Model:
    known = catalogue.find(f"Qwen/Qwen3.5-{name}")
    assert known is not None
    return subject.of(known.config, None)


# Held against real starts


@pytest.mark.parametrize("number", range(len(runs.rows())))
def test_a_real_start_is_planned_within_two_percent(number: int, tiny: Callable[[str], Path]) -> None:
    row = runs.rows()[number]
    run = runs.planned(row, config_of(row["model"], tiny))
    assert abs(run.error) <= 0.02, row
    assert run.plan.concurrency == pytest.approx(row["concurrency"], rel=0.02)
    if "block_size" in row:
        assert run.plan.cut.block_size == row["block_size"]
    for part, seen in (("weights_gib", run.plan.resident.total), ("kv_gib", run.plan.available)):
        if part in row:
            assert seen / GIB == pytest.approx(row[part], rel=0.02), part
    if "activations_gib" in row and run.plan.overhead:
        assert run.plan.overhead.peak / GIB == pytest.approx(row["activations_gib"], abs=0.1)


def test_the_starts_cover_what_is_claimed() -> None:
    rows = runs.rows()
    assert {row["vllm"] for row in rows} == {"0.19.1", "0.32.0"}
    assert {"Qwen/Qwen3.5-0.8B", "Qwen/Qwen3.5-4B", "Qwen/Qwen3.5-27B"} <= {row["model"] for row in rows}
    assert any(row["flags"].get("kv_dtype") == "fp8" for row in rows)
    assert {row["vllm"] for row in rows if row["flags"].get("tensor_parallel") == 2} == {"0.19.1", "0.32.0"}


# What a wrong rule would give: the comparison has power


def test_counting_every_layer_as_attention_is_off_by_four() -> None:
    model = published("4B")
    known = catalogue.find("Qwen/Qwen3.5-4B")
    assert known is not None
    text = {**known.config["text_config"], "layer_types": ["full_attention"] * 32}
    wrong = geometry.of({**known.config, "text_config": text})
    assert wrong.kv_bytes_per_token() == 4 * model.geometry.kv_bytes_per_token()
    assert model.geometry.kv_bytes_per_token() == known.get("cache_derived.kv_bytes_per_token_bf16")


def test_a_config_without_the_state_type_halves_the_state() -> None:
    known = catalogue.find("Qwen/Qwen3.5-9B")
    assert known is not None
    bare = {key: value for key, value in known.config["text_config"].items() if key != "mamba_ssm_dtype"}
    with_it, without = geometry.of(known.config), geometry.of({**known.config, "text_config": bare})
    rule = cache.rules("0.19.1")
    assert cache.cut(with_it, rule, CUDA, Choice()).block_size == 528
    assert cache.cut(without, rule, CUDA, Choice()).block_size == 272


# Weights


@pytest.mark.parametrize("model", EIGHT, ids=lambda one: one.size)
def test_weights_of_all_parts_are_the_published_parameters(model: catalogue.Model) -> None:
    made = subject.of(model.config, None)
    whole = weights.resident(made.tensors, made.geometry, tied=made.tied, parallel=1, vision=True, mtp=True)
    assert whole.language + whole.vision + whole.mtp == model.get("weights.tensor_bytes")


def test_headers_and_config_give_the_same(tiny: Callable[[str], Path]) -> None:
    for kind in ("tiny-qwen3.5", "tiny-qwen3"):
        folder = tiny(kind)
        config = json.loads((folder / "config.json").read_text())
        held = headers.read(folder).tensors.values()
        by_file = subject.of(config, [(one.name, one.dtype, one.shape, one.bytes) for one in held])
        assert sorted(by_file.tensors, key=lambda one: one.name) == sorted(
            subject.of(config, None).tensors, key=lambda one: one.name
        )


@pytest.mark.parametrize("parallel", [2, 4, 8])
def test_division_leaves_nothing_out(parallel: int) -> None:
    model = published("27B")
    one = weights.resident(model.tensors, model.geometry, tied=False, parallel=1, vision=False, mtp=False)
    each = weights.resident(
        model.tensors, model.geometry, tied=False, parallel=parallel, vision=False, mtp=False
    )
    assert one.language <= parallel * each.language < one.language * 1.02 + parallel * (1 << 30)
    assert each.rotary == one.rotary


def test_keys_and_values_repeat_when_heads_run_out() -> None:
    model = published("35B-A3B")  # two KV heads
    key = next(one for one in model.tensors if one.name.endswith("layers.3.self_attn.k_proj.weight"))
    assert [weights.share(key, model.geometry, size) for size in (1, 2, 4, 8)] == [
        key.bytes, key.bytes // 2, key.bytes // 2, key.bytes // 2,
    ]  # fmt: skip


def test_a_tied_copy_of_the_head_is_counted_once() -> None:
    known = catalogue.find("Qwen/Qwen3.5-4B")
    assert known is not None
    made = subject.of(known.config, None)
    embedding = next(one for one in made.tensors if one.name.endswith("embed_tokens.weight"))
    copied = (*made.tensors, weights.Sized("lm_head.weight", embedding.shape, embedding.bytes))
    plain = weights.resident(made.tensors, made.geometry, tied=True, parallel=1, vision=False, mtp=False)
    assert weights.resident(copied, made.geometry, tied=True, parallel=1, vision=False, mtp=False) == plain
    untied = weights.resident(copied, made.geometry, tied=False, parallel=1, vision=False, mtp=False)
    assert untied.language == plain.language + embedding.bytes


def test_quantised_tensors_stay_as_they_are_and_float32_ones_are_converted() -> None:
    known = catalogue.find("Qwen/Qwen3.5-4B")
    assert known is not None
    rows = [
        ("model.language_model.layers.0.mlp.up_proj.weight", "F8_E4M3", (8, 8), 64),
        ("model.language_model.layers.0.mlp.gate_proj.weight", "F32", (8, 8), 256),
        ("model.language_model.layers.0.linear_attn.A_log", "F32", (32,), 128),
    ]
    assert [one.bytes for one in subject.of(known.config, rows).tensors] == [64, 128, 128]


# Limits and what binds


def ask(**other: Any) -> Ask:
    return dataclasses.replace(Ask("0.19.1", max_model_len=32768), **other)


@pytest.mark.parametrize(
    ("model", "device", "asked", "binding"),
    [
        ("4B", H200, ask(), plan.KV),
        ("4B", H200, ask(max_num_seqs=32), plan.SEQUENCES),
        ("27B", SMALL, ask(), plan.WEIGHTS),
        ("9B", SMALL, ask(utilization=0.73), plan.ACTIVATIONS),
        ("9B", SMALL, ask(max_model_len=262144), plan.LENGTH),
        ("4B", SMALL, ask(max_model_len=1024, max_num_seqs=256), plan.STATE),
    ],
)  # fmt: skip
def test_the_limit_that_binds_is_named(model: str, device: Device, asked: Ask, binding: str) -> None:
    made = plan.make(published(model), device, asked)
    assert made.binding == binding
    assert made.fits == (binding in (plan.KV, plan.SEQUENCES, plan.STATE))
    assert made.why


def test_the_longest_length_is_the_longest_that_starts() -> None:
    model = published("9B")
    made = plan.make(model, SMALL, ask(max_model_len=262144))
    assert 0 < made.longest < 262144
    assert plan.make(model, SMALL, ask(max_model_len=made.longest)).fits
    assert not plan.make(model, SMALL, ask(max_model_len=made.longest + made.cut.block_size)).fits


def test_as_many_as_wanted_run_at_the_length_that_is_given() -> None:
    made = plan.make(published("4B"), H200, ask())
    longest = made.longest_of(200)
    assert made.cut.blocks_for(longest) * 200 <= made.blocks < made.cut.blocks_for(longest + 528) * 200


def test_each_change_brings_what_it_says() -> None:
    model = published("9B")
    made = plan.make(model, SMALL, ask(text_only=False))
    found = plan.changes(model, SMALL, made)
    assert {one.what.split()[0] for one in found} >= {
        "--kv-cache-dtype",
        "--language-model-only",
        "--tensor-parallel-size",
    }
    assert all(one.plan.fits and one.plan.concurrency > made.concurrency for one in found)


def test_what_does_not_fit_gets_the_first_division_that_does() -> None:
    model = published("27B")
    (only,) = plan.changes(model, SMALL, plan.make(model, SMALL, ask()))
    assert only.what == "--tensor-parallel-size 4"
    assert not plan.make(model, SMALL, ask(choice=Choice(2))).fits


def test_replicas_come_best_first() -> None:
    ways = plan.placements(published("4B"), SMALL, ask(), 4)
    assert [(one.parallel, one.replicas) for one in ways if one.parallel * one.replicas != 4] == []
    assert [one.concurrency for one in ways] == sorted((one.concurrency for one in ways), reverse=True)


def test_the_log_of_0_19_1_understates_and_later_ones_do_not() -> None:
    old = plan.make(published("4B"), H200, ask())
    assert old.capacity > 3.5 * old.kv_tokens
    new = plan.make(published("4B"), H200, ask(release="0.33.0"))
    assert new.capacity == new.kv_tokens


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (ask(utilization=90), "share"),
        (ask(utilization=0), "share"),
        (ask(max_model_len=300000), "positions"),
        (ask(choice=Choice(3)), "not divisible"),
        (ask(choice=Choice(kv_dtype="int3")), "fp8"),
        (ask(release="0.25.0"), "0.19.1"),
    ],
)
def test_bad_input_says_what_was_expected(asked: Ask, words: str) -> None:
    with pytest.raises(BadParameter, match=words):
        plan.make(published("4B"), H200, asked)


def test_fp8_blocks_refuse_a_division_that_cuts_them() -> None:
    known = catalogue.find("Qwen/Qwen3.5-35B-A3B")
    assert known is not None
    config = {**known.config, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    shaped = geometry.of(config)
    assert weights.cannot_divide(shaped, 4, vision=False) == []
    assert "P14" in weights.cannot_divide(shaped, 8, vision=False)[0]


@pytest.mark.parametrize(
    "text",
    [
        {"num_hidden_layers": 4}, {"sliding_window": 4096}, {"kv_lora_rank": 512}, {"layer_types": ["mamba"] * 32},
        {"dtype": "int4"}, {"linear_num_key_heads": "many"}, {"head_dim": "wide"},
    ],
)  # fmt: skip
def test_a_config_that_cannot_be_planned_for_is_refused(text: dict[str, Any]) -> None:
    known = catalogue.find("Qwen/Qwen3.5-4B")
    assert known is not None
    inner = text if "num_hidden_layers" in text else {**known.config["text_config"], **text}
    with pytest.raises(BadParameter):
        plan.make(subject.of({**known.config, "text_config": inner}, None), H200, ask())


ODD = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3), st.lists(st.text(max_size=3), max_size=3), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2))  # fmt: skip
KNOWN = catalogue.models()[2].config


@given(
    where=st.sampled_from(["top", "text_config"]),
    key=st.sampled_from(sorted({*KNOWN, *KNOWN["text_config"]})),
    value=ODD,
    there=st.booleans(),
)
def test_an_odd_value_anywhere_is_refused_or_planned_for(
    where: str, key: str, value: Any, *, there: bool
) -> None:
    rows = [("model.norm.weight", "BF16", (8,), 16)] if there else None
    text = {**KNOWN["text_config"], key: value} if where == "text_config" else KNOWN["text_config"]
    config = {**KNOWN, "text_config": text} | ({key: value} if where == "top" else {})
    with contextlib.suppress(BadParameter):
        made = plan.make(subject.of(config, rows), H200, Ask("0.19.1"))
        assert made.blocks >= 0


@given(
    length=st.integers(1, 262144),
    sequences=st.integers(1, 4096),
    tokens=st.integers(1, 65536),
    share=st.floats(0.01, 1),
    parallel=st.sampled_from([1, 2, 4]),
    memory=st.integers(1, 200),
)
def test_plans_hang_together(
    length: int, sequences: int, tokens: int, share: float, parallel: int, memory: int
) -> None:
    asked = Ask("0.19.1", share, length, sequences, tokens, choice=Choice(parallel))
    made = plan.make(published("9B"), Device(CUDA, memory * GIB), asked)
    assert made.fits == (made.blocks >= made.cut.blocks_for(length))
    assert made.blocks * made.cut.pool <= max(0, made.available)
    assert made.longest <= 262144
    text = render.text(made, "x")
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(render.json_text(made, "x"))["binding"] == made.binding


# Devices and stacks


def test_a_card_that_was_read_needs_no_size() -> None:
    assert devices.named("H200", None) == (H200, ())
    assert devices.named("H200", 143771)[0] == H200
    other, notes = devices.named("H200", 100000)
    assert other.memory < 100000 << 20
    assert notes


def test_a_card_known_by_name_alone_says_what_was_assumed() -> None:
    card, notes = devices.named("RTX 4090", None)
    assert 23 * GIB < card.memory < 24 * GIB
    assert "sold with" in notes[0]


def test_a_card_nobody_knows_needs_its_size() -> None:
    with pytest.raises(BadParameter, match="gpu-memory-mib"):
        devices.named("GTX 999", None)
    assert devices.named("GTX 999", 16384)[0].memory < 16 * GIB


def test_the_stack_fills_in_what_a_command_leaves_out() -> None:
    given_ = stacked.ask_of(
        pins.stack("vllm-0.32.0-cpu"), Choice(), positions=32768, own_server=True, text_only=True
    )
    assert (given_.max_model_len, given_.max_num_seqs, given_.cache_bytes) == (2048, 16, GIB)
    elsewhere = stacked.ask_of(
        pins.stack("vllm-0.32.0-cpu"), Choice(), positions=32768, own_server=False, text_only=True
    )
    assert elsewhere.cache_bytes is None
    short = stacked.ask_of(
        pins.stack("vllm-0.19.1-cu128"), Choice(), positions=4096, own_server=True, text_only=True
    )
    assert short.max_model_len == 4096


def test_without_a_cache_size_a_cpu_takes_its_share() -> None:
    model = published("0.8B")
    new = plan.make(model, Device(CPU, 64 * GIB), Ask("0.32.0", 0.5, 4096))
    old = plan.make(model, Device(CPU, 64 * GIB), Ask("0.19.1", 0.5, 4096))
    assert 29 * GIB < new.available < 32 * GIB
    assert old.available == 32 * GIB


# Shapes


@pytest.mark.parametrize("model", EIGHT, ids=lambda one: one.size)
def test_expected_shapes_sum_to_the_published_totals(model: catalogue.Model) -> None:
    found = shapes.expected(model.config)
    assert found is not None
    total = sum(int(one) for one in map(_product, found.values()))
    assert total == model.get("parameters.total")


def _product(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def test_the_largest_has_the_published_number_of_tensors() -> None:
    known = catalogue.find("Qwen/Qwen3.5-397B-A17B")
    assert known is not None
    found = shapes.expected(known.config)
    assert found is not None
    assert len(found) == 2924
    assert shapes.expected({"model_type": "llama"}) is None


# Faces


def test_the_chart_is_as_wide_as_it_says_and_shows_every_part() -> None:
    for device, name in ((H200, "4B"), (SMALL, "27B")):
        made = plan.make(published(name), device, ask())
        line = render.bar(made)[0]
        assert len(line) == render.WIDTH + 2
        assert set(line.strip("|")) == {one.letter for one in render.parts(made)}
    assert "here the memory ends" in "\n".join(render.bar(made))


def test_the_picture_holds_the_numbers() -> None:
    made = plan.make(published("4B"), H200, ask())
    picture = render.svg(made, "<4B>")
    assert f"{made.kv_tokens:,} KV tokens" in picture
    assert "&lt;4B&gt;" in picture


def test_every_release_of_a_stack_has_its_rules() -> None:
    for name in pins.names():
        assert cache.rules(pins.stack(name).vllm).release == pins.stack(name).vllm
    assert all(row["source"] and row["read"] for row in tables.rows("vllm_memory"))
