"""Edited copies whose checkpoint is damaged: the faults are those the examination prints for such files (tests/checkpoint)."""

import json
from collections.abc import Callable
from typing import Any

from editing import Edited, replaced

from runbook.checkpoint import examine
from runbook.checks.model_files import HASH
from runbook.checks.model_readings import CONFIG, EXAMINE
from runbook.model import Verdict

CPU2, CPU = "cpu-2core", "vllm-0.32.0-cpu"
FAIL, OK = Verdict.FAIL, Verdict.OK
REVISIONS = ("2fc06364715b967f1860aea9cf38778875588b17", "15852e8c16360a2fea060d615a32b45270f8a8fc")


def found(*faults: tuple[str, str, str], **parts: dict[str, Any]) -> Callable[[str], str]:
    """The examination with faults, and with other values of some facts."""

    def change(text: str) -> str:
        whole = json.loads(text)
        for name, values in parts.items():
            whole[name] = {**whole[name], **values}
        whole["faults"] += [list(fault) for fault in faults]
        return examine.as_json(whole) + "\n"

    return change


MACHINES = [
    Edited(
        "cpu-cut-checkpoint", CPU2, CPU, "2 cores; a download that ended early",
        ("the weight file ends 3,000,000 bytes before its header says", "an index names a file that is not there", "the template was not fetched"),
        {EXAMINE: found(
            ("weights/cut", "model.safetensors", "ends 3000000 bytes before its header says, of 4249616"),
            ("index/shard", "model-00002-of-00002.safetensors", "is named by the index and not there; it should hold tensors: 71 (lm_head.weight, model.language_model.norm.weight, model.visual.merger.norm.bias, ...)"),
            ("template/none", "chat_template.jinja", "is not there, and tokenizer_config.json has no chat_template: chats are refused"),
            template={"from": "", "ends": {}, "turn": ""},
        )},
        {"MODEL-002": FAIL, "MODEL-012": FAIL, "MODEL-014": FAIL},
    ),
    Edited(
        "cpu-edited-checkpoint", CPU2, CPU, "2 cores; a checkpoint whose config and tokenizer were edited",
        ("rope theta is 10,000, M-RoPE's sections are those of another size", "the pad token is one that does not exist", "the class is one without images"),
        {
            EXAMINE: found(
                ("tokenizer/pad", "tokenizer_config.json", "calls '<pad>' the pad_token, and the vocabulary has no such token"),
                ("origin/class", "config.json", "names Qwen3_5ForCausalLM, a class without images, over a checkpoint with a vision tower"),
                ("config/rope-theta", "config.json", "rope_theta is 10000, each Qwen3.5 was trained with 10000000"),
                ("config/mrope", "config.json", "mrope_section [11, 11, 10] has 32 frequencies, half of 8 rotated dimensions are 4"),
            ),
            f"read {CONFIG}": replaced(('"rope_theta": 10000000.0', '"rope_theta": 10000.0'), ('"mrope_section": [2, 1, 1]', '"mrope_section": [11, 11, 10]')),
        },
        {"MODEL-004": FAIL, "MODEL-013": FAIL, "MODEL-016": FAIL, "MODEL-019": FAIL},
    ),
    Edited(
        "cpu-mixed-checkpoint", CPU2, CPU, "2 cores; a folder that was filled from two revisions, in a quantisation that this vLLM dropped",
        ("the embedding has fewer rows than vocab_size says", "generation_config ends at another token than the template", "files are of two revisions", "the config says bitsandbytes"),
        {EXAMINE: found(
            ("shapes/vocabulary", "model.safetensors", "lm_head.weight has 512 rows, the config's vocab_size is 600"),
            ("generation/end", "generation_config.json", "ends at 503 (<|endoftext|>); the chat template ends a turn with <|im_end|> (505)"),
            ("hashes/revisions", "chat_template.jinja", f"and others are of several revisions: 2 ({', '.join(sorted(REVISIONS))})"),
            hub={"files": 8, "revisions": {REVISIONS[1]: 1, REVISIONS[0]: 7}},
            origin={"quantisation": "bitsandbytes"},
        ), HASH: '{"hashes":{"checked":8,"not_known":0},"faults":[]}\n', "read {site}/vllm/model_executor/layers/quantization/__init__.py": 'QuantizationMethods = Literal[\n    "awq",\n    "fp8",\n]\n'},
        {"MODEL-011": FAIL, "MODEL-015": FAIL, "MODEL-017": OK, "MODEL-018": FAIL, "MODEL-020": FAIL},
    ),
]  # fmt: skip
