"""Edited copies whose checkpoint does not suit the versions or the card beside it."""

from editing import Edited, replaced

from runbook.checks.model_readings import CONFIG
from runbook.model import Verdict

H200, GPU = "h200-vllm-0.19.1", "vllm-0.19.1-cu128"
READ = f"read {CONFIG}"
TOP = '"architectures":'
QUANTISED = f'"quantization_config": {{"quant_method": "modelopt", "quant_algo": "%s"}},\n  {TOP}'

MACHINES = [
    Edited(
        "h200-model-nvfp4",
        H200,
        GPU,
        "An H200 on which a copy quantised to NVFP4 is to be served.",
        ("config.json of the checkpoint says quantization_config: modelopt, NVFP4",),
        {READ: replaced((TOP, QUANTISED % "NVFP4"))},
        {"MODEL-008": Verdict.WARN},
    ),
    Edited(
        "h200-model-mxfp8",
        H200,
        GPU,
        "An H200 on which a copy quantised to MXFP8 is to be served, which this vLLM loads on Blackwell only.",
        ("config.json of the checkpoint says quantization_config: modelopt, MXFP8",),
        {READ: replaced((TOP, QUANTISED % "MXFP8"))},
        {"MODEL-008": Verdict.FAIL},
    ),
]
