"""Hold our judgement of command lines against the parser of an installed vLLM: which it accepts, which it refuses.

    python benchmarks/judge_flags.py NAME [PYTHON]

NAME is a stack whose ``flags.json`` is judged by; PYTHON defaults to the target the runbook built for it. Prints one
line a command and ends with 1 when the two disagree. The list below is what people paste: flags of other releases,
misspellings, abbreviations, JSON keys, switches with a value.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

from runbook import pins, tables
from runbook.parse import vllm_flags
from runbook.probes.live import target_env
from runbook.workspace import workspace

SERVE, MODULE = "vllm serve M ", "python -m vllm.entrypoints.openai.api_server --model M "
LINES = (
    *(f"{form}{flags}" for form in (SERVE, MODULE) for flags in (
        "--max-model-len 32768", "--max-model-len 32k", "--max-model-len 32K", "--max-model-len auto", "--max-model-len -1",
        "--max-model-len many", "--max_model_len 4096", "--max-model-len=4096", "--max-model 4096", "--max-m 4096",
        "--gpu-memory-utilization 0.9", "--gpu-memory-utilization high", "--gpu_memory_utilization=.85", "--gpu-mem 0.5",
        "--enforce-eager", "--enforce-eager true", "--enforce-eager=true", "--no-enforce-eager", "--enforce-eager --seed 1",
        "--enable-prefix-caching", "--no-enable-prefix-caching", "--enable-prefix-caching true", "--enable-prefix-caching=false",
        "--enable-chunked-prefill", "--disable-log-requests", "--enable-log-requests", "--disable-log-stats", "--disable-log-stats 1",
        "--swap-space 4", "--num-scheduler-steps 8", "--use-v2-block-manager", "--device cuda", "--task generate",
        "--guided-decoding-backend xgrammar", "--worker-use-ray", "--max-num-blocks 12", "--log-level debug", "--uvicorn-log-level debug",
        "--rope-scaling '{\"rope_type\": \"yarn\"}'", "--hf-overrides '{\"a\": 1}'", "--hf-overrides.a 1", "--hf-overrides nonsense",
        "--compilation-config '{\"mode\": 3}'", "--compilation-config.mode 3", "--compilation_config.mode=3", "-cc.mode 3", "-cc.mode=3",
        "--compilation-config", "--compilation-config.mode", "-O3", "-O 3", "-O=3", "-O", "-O9", "-tp 2", "-tp=2", "-tp2", "-t 2",
        "--tensor-parallel-size 2", "--tensor-parallel-size two", "--tensor-parallel-size 2 3", "--dtype bf16", "--dtype bfloat16",
        "--kv-cache-dtype fp8", "--kv-cache-dtype int3", "--quantization fp8", "--quantization None", "--load-format dummy",
        "--limit-mm-per-prompt '{\"image\":0}'", "--limit-mm-per-prompt image=0", "--limit-mm-per-prompt.image 0", "--seed -1",
        "--served-model-name a b c", "--served-model-name", "--api-key", "--port 8000", "--port 80", "--port http", "--host 0.0.0.0",
        "--gdn-prefill-backend triton", "--gdn-prefill-backend cuda", "--attention-backend FLASH_ATTN", "--attention-backend nonsense",
        "--moe-backend FlashInfer-CUTLASS", "--moe-backend fast", "--max-num-seqs 16 --max-num-seqs 32", "--max-num-seqs", "--max-num-seqs -5",
        "--allowed-origins '[\"*\"]'", "--allowed-origins *", "--trust-remote-code --trust", "--no-trust-remote-code", "--no-disable-log-stats",
        "extra", "extra words", "--seed 1 extra", "-- --seed", "--nonsense", "--nonsense 1 2", "--max-model-lenght 1", "--enforce-eagre",
        "--speculative-config '{\"method\": \"mtp\"}'", "--speculative-config.method mtp", "--speculative-model x", "--reasoning-parser qwen3",
        "--enable-reasoning", "--enable-auto-tool-choice --tool-call-parser qwen3_coder", "--chat-template x.jinja", "--help", "--seed.x 1",
        "--enforce-eager.x 1", "--lora-modules a=b c=d", "--max-num-batched-tokens 8k", "--max-num-batched-tokens auto", "-q fp8", "-ac.backend FLASH_ATTN",
        "--language-model-only", "--async-scheduling", "--no-async-scheduling", "--enable-sleep-mode", "--config=nofile.yaml",
    )),
    "vllm serve --model M --seed 1", "vllm serve --seed 1 M", "vllm serve --served-model-name s --seed 1", "vllm serve",
)  # fmt: skip
ASK = """
import contextlib, io, json, sys
import vllm.platforms as p
if not p.current_platform.device_type: p.current_platform.device_type = "cuda"
from vllm.entrypoints.cli.serve import ServeSubcommand, make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
module = make_arg_parser(FlexibleArgumentParser())
serve = FlexibleArgumentParser()
ServeSubcommand().subparser_init(serve.add_subparsers(dest="subparser"))
answers = []
for form, words in json.load(sys.stdin):
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            (serve if form == "serve" else module).parse_args(["serve", *words] if form == "serve" else words)
            answers.append([True, ""])
        except SystemExit as end:
            answers.append([not end.code, said.getvalue().strip().splitlines()[-1:]])
        except Exception as why:
            answers.append([False, [f"{type(why).__name__}: {why}"]])
print(json.dumps(answers))
"""


def main() -> None:
    """Ask both and compare."""
    stack = pins.stack(sys.argv[1])
    work = workspace()
    python = sys.argv[2] if sys.argv[2:] else str(work.target_python(stack.name))
    known = vllm_flags.shipped((pins.STACKS / stack.name / "flags.json").read_text(encoding="utf-8"))
    asked = [vllm_flags.command(shlex.split(line)) for line in LINES]
    if known is None or None in asked:
        sys.exit("flags.json or one of the lines cannot be read")
    question = json.dumps([(one.form, one.words) for one in asked if one])
    ran = subprocess.run([python, "-c", ASK], input=question, capture_output=True, text=True, env=target_env(work, stack.name, Path(python)), check=False)  # fmt: skip
    if ran.returncode:
        sys.exit(ran.stderr[-2000:])
    answers = json.loads(ran.stdout.splitlines()[-1])
    apart = 0
    for line, one, (accepted, said) in zip(LINES, asked, answers, strict=True):
        judged = vllm_flags.judge(
            one or vllm_flags.Command((), "flags", ()), known.options, tables.vllm_flags()
        )
        ours = not any(each.refused for each in judged)
        apart += ours is not accepted
        mark = "same " if ours is accepted else "APART"
        why = "; ".join(f"{each.word}: {each.says}" for each in judged if each.refused)
        print(f"{mark} {'accepted' if accepted else 'refused '} {line}  | {' '.join(said)[:120]} | {why}")
    print(
        f"{len(LINES)} command lines, vLLM {known.version} ({Path(python).name}): {apart} judged otherwise than its parser does"
    )
    sys.exit(1 if apart else 0)


if __name__ == "__main__":
    main()
