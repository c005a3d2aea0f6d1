"""Which kernels a release takes. ``benchmarks/attention_selector.py`` asks vLLM itself; its answers are in docs/attention.md."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook import tables
from runbook.parse import attention
from runbook.parse.attention import Model

QWEN = Model(256)
DOCS = Path(__file__).parents[2] / "docs" / "attention.md"


def answers_of_vllm() -> list[tuple[str, str, str, str]]:
    """(capability, attention, flash, gdn) as vLLM 0.19.1 answered and the page keeps it."""
    text = DOCS.read_text(encoding="utf-8")
    return re.findall(r"(?m)^  (\d+\.\d) +attention (\w+) +flash (\w+) +gdn (\w+)$", text)


def test_the_page_holds_vllms_answers() -> None:
    assert {row[0] for row in answers_of_vllm()} >= {"7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0"}
    assert re.search(r"(?m)^\d+ answers of vLLM 0\.19\.1, 0 otherwise than the table$", DOCS.read_text(encoding="utf-8"))  # fmt: skip


@pytest.mark.parametrize(("cap", "backend", "flash", "gdn"), answers_of_vllm())
def test_the_table_says_what_vllm_said(cap: str, backend: str, flash: str, gdn: str) -> None:
    chosen = attention.choose("0.19.1", cap, QWEN)
    assert chosen is not None
    assert chosen.backend == backend
    version = attention.flash_version("0.19.1", cap, 256) if attention.takes_flash("0.19.1", cap) else None
    assert str(version.version if version else None) == flash
    rule = attention.gdn("0.19.1", cap)
    assert rule is not None
    assert rule.backend == gdn


def test_what_refuses_a_backend_is_said() -> None:
    chosen = attention.choose("0.19.1", "7.5", Model(320), lambda _: False)
    assert chosen is not None
    assert chosen.backend == "TRITON_ATTN"
    assert dict(chosen.refused) == {
        "FLASH_ATTN": "vllm/vllm_flash_attn is not installed",
        "FLASHINFER": "flashinfer is not installed",
    }


def test_none_fits() -> None:
    chosen = attention.choose("0.19.1", "9.0", Model(256, kv="fp8_inc"))
    assert chosen is not None
    assert chosen.backend == ""
    assert "KV cache fp8_inc" in chosen.because


def test_0_32_on_blackwell() -> None:
    """Read in its source: version 4 for heads of 256, FlashInfer's prefill with CUDA 13, no FlashInfer on 7.5."""
    flash = attention.flash_version("0.32.0", "10.0", 256)
    assert flash is not None
    assert flash.version == 4
    prefills = [attention.gdn("0.32.0", cap, "auto", 128, cuda) for cap, cuda in (("12.0", 13), ("12.0", 12), ("8.0", 13))]  # fmt: skip
    assert [one.backend if one else None for one in prefills] == ["flashinfer", "triton", "triton"]
    old = attention.choose("0.32.0", "7.5", QWEN)
    assert old is not None
    assert old.backend == "TRITON_ATTN"


def test_a_release_that_is_not_on_record_has_no_answer() -> None:
    assert attention.choose("0.20.0", "9.0", QWEN) is None
    assert attention.flash_version("0.20.0", "9.0", 256) is None
    assert attention.gdn("0.20.0", "9.0") is None
    assert attention.against("0.20.0", "FLASH_ATTN", "9.0", QWEN, lambda _: True) is None


def test_every_row_has_its_release_and_source() -> None:
    for row in tables.rows("attention_backends"):
        assert row["vllm"]
        assert all(
            re.match(r"pkg:pypi/vllm(-cpu)?@[\d.]+#vllm/\S+\.py: \w", source) for source in row["source"]
        )


@pytest.mark.parametrize(
    ("config", "size", "linear"),
    [
        ('{"text_config": {"head_dim": 256, "linear_key_head_dim": 128}}', 256, True),
        ('{"hidden_size": 4096, "num_attention_heads": 32}', 128, False),
        (
            '{"text_config": {"head_dim": 64, "layer_types": ["full_attention"], "linear_key_head_dim": 1}}',
            64,
            False,
        ),
    ],
)
def test_a_config(config: str, size: int, *, linear: bool) -> None:
    found = attention.model_of(config)
    assert found is not None
    assert (found[0].head_size, found[1]) == (size, linear)


odd_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(("head_dim", "hidden_size", "num_attention_heads", "text_config", "dtype", "torch_dtype", "layer_types")), inner, max_size=6),
    max_leaves=10,
)  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True)
@given(value=odd_json, text=st.text(max_size=40))
def test_an_odd_config_never_raises(value: Any, text: str) -> None:
    import json  # noqa: PLC0415 - nothing else here needs it

    attention.model_of(text)
    found = attention.model_of(json.dumps(value))
    assert found is None or found[0].head_size > 0
