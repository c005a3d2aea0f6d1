"""inside/parity_reference.py without torch: which hypotheses it has, what it makes of two configs, what it sends and reads.

The walk tests run it whole; what follows from its answer is tests/test_parity.py.
"""

import importlib.util
import json
import struct
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from runbook.probes.live import INSIDE


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("parity_reference", INSIDE / "parity_reference.py")
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def hybrid(**text: Any) -> dict[str, Any]:
    rope = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
    inner = {"dtype": "bfloat16", "rope_parameters": rope, "partial_rotary_factor": 0.25, **text}
    return {
        "model_type": "qwen3_5",
        "tie_word_embeddings": False,
        "text_config": inner,
        "vision_config": {"depth": 2},
    }


THETA = "text_config.rope_parameters.rope_theta"


def test_there_are_at_least_twenty_prompts_of_every_kind(script: ModuleType) -> None:
    assert len(script.PLAIN) >= 20
    assert len(set(script.PLAIN.values())) == len(script.PLAIN) - 1  # the two long ones are made later
    joined = "".join(script.PLAIN.values())
    assert any("\u4e00" <= one <= "\u9fff" for one in joined)
    assert any(ord(one) > 0xFFFF for one in joined)
    assert {thinking for _, thinking in list(script.CHAT.values())[:2]} == {True, False}


def test_the_long_prompts_fill_what_they_may(script: ModuleType) -> None:
    class Bytes:
        @staticmethod
        def encode(text: str) -> bytes:
            return text.encode()

    made = script.texts(Bytes, 3000)
    assert 2800 < len(made["long"].encode()) <= 3000
    assert 1300 < len(made["half as long"].encode()) <= 1500
    assert made["english"] == script.PLAIN["english"]


def test_hypotheses_of_a_hybrid(script: ModuleType) -> None:
    found = script.hypotheses(hybrid(), None)
    assert found == {
        "rope_theta = 10000": {THETA: 10000.0},
        "rope_theta = 1e+06": {THETA: 1000000.0},
        "partial_rotary_factor = 1": {
            "text_config.rope_parameters.partial_rotary_factor": 1.0,
            "text_config.partial_rotary_factor": 1.0,
        },
        script.TIED: {},
    }


def test_hypotheses_of_a_dense_model_whose_head_is_tied(script: ModuleType) -> None:
    dense = {
        "model_type": "qwen3",
        "tie_word_embeddings": True,
        "rope_theta": 1e6,
        "rope_parameters": {"rope_theta": 1e6},
    }
    assert script.hypotheses(dense, None) == {
        "rope_theta = 10000": {"rope_theta": 10000.0, "rope_parameters.rope_theta": 10000.0},
        "rope_theta = 1e+07": {"rope_theta": 1e7, "rope_parameters.rope_theta": 1e7},
    }


def test_the_served_configs_own_keys_come_first_and_pictures_are_not_asked_about(script: ModuleType) -> None:
    served = script.edited(
        hybrid(), {THETA: 10000.0, "text_config.rope_scaling": {"type": "dynamic", "factor": 4.0}}
    )
    served["vision_config"]["depth"] = 3
    served["transformers_version"] = "5.0.0"
    assert list(script.differing(served, hybrid())) == [
        THETA,
        "text_config.rope_scaling",
        "vision_config.depth",
    ]
    names = list(script.hypotheses(hybrid(), served))
    assert names[:4] == [
        f"{THETA} = 10000.0, as in the served config.json",
        "text_config.rope_scaling = {'type': 'dynamic', 'factor': 4.0}, as in the served config.json",
        "every key of the served config.json",
        script.WHOLE,
    ]


def test_a_served_config_of_another_class_is_taken_whole_or_not_at_all(script: ModuleType) -> None:
    served = {"model_type": "qwen3_5_text", "rope_parameters": {"rope_theta": 1e7}}
    names = list(script.hypotheses(hybrid(), served))
    assert names[0] == script.WHOLE
    assert not any("served config.json" in name for name in names)


def test_an_edit_leaves_the_config_it_was_made_of(script: ModuleType) -> None:
    config = hybrid()
    new = script.edited(config, {THETA: 1.0, "text_config.partial_rotary_factor": None, "a.b": 2})
    assert config == hybrid()
    assert new["text_config"]["rope_parameters"]["rope_theta"] == 1.0
    assert "partial_rotary_factor" not in new["text_config"]
    assert new["a"] == {"b": 2}


@pytest.mark.parametrize(
    ("config", "dtype"),
    [
        (hybrid(), "bfloat16"),
        (hybrid(dtype="float16"), "float16"),
        ({"torch_dtype": "float16"}, "float16"),
        ({"dtype": "torch.float32"}, "bfloat16"),
        ({}, "bfloat16"),
    ],
)
def test_what_auto_is(script: ModuleType, config: dict[str, Any], dtype: str) -> None:
    assert script.dtype_of(config) == dtype


def test_parameters_are_counted_from_headers(script: ModuleType, tmp_path: Path) -> None:
    for name, shape in (("a", [3, 4]), ("b", [5])):
        header = json.dumps(
            {"__metadata__": {}, "w": {"dtype": "BF16", "shape": shape, "data_offsets": [0, 1]}}
        ).encode()
        (tmp_path / f"{name}.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    assert script.parameters(tmp_path) == 17


@pytest.mark.parametrize(
    ("choice", "says"),
    [
        ({"logprobs": {"token_logprobs": [-1.0]}}, "does not return token ids"),
        ({"token_ids": [1], "logprobs": {"token_logprobs": [-1.0]}}, "does not return token ids"),
        ({"token_ids": [1, 2], "prompt_token_ids": [7], "logprobs": {"token_logprobs": [-1.0]}}, "2 tokens and 1 log-probabilities"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_compared_is_refused(
    script: ModuleType, choice: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        script.row("english", "alone", choice)
