"""Run by the target interpreter: vLLM's own ``bench serve``, several loads in one process. Prints one JSON object a line.

``--url URL --model NAME --tokenizer FOLDER``; the key comes from the variable OPENAI_API_KEY, which vLLM's client reads.
First it prints ``{"ready": true, ...}``. Then each line of standard input, a JSON object, is one load, and its answer is
one line; the end of input ends it. The ``vllm`` command itself asks for the version of a distribution called vllm, which
a CPU build does not have; the module behind it does not. Its import costs ten seconds, which is why one process serves all.

Each request comes back as [sent (s, on this process's clock), time to first token, time from first to last chunk,
longest gap between two chunks, tokens, chunks, error]; vLLM's summary counts a failed one as a time of zero.
"""

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PATHS = {"openai": "/v1/completions", "openai-chat": "/v1/chat/completions"}


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _words(given: argparse.Namespace, load: dict[str, Any], folder: str) -> list[str]:
    words = [
        "--backend", load["backend"], "--endpoint", PATHS[load["backend"]], "--base-url", given.url,
        "--model", given.model, "--served-model-name", given.model, "--tokenizer", given.tokenizer,
        "--dataset-name", "random", "--random-input-len", str(load["input_len"]), "--random-output-len", str(load["output_len"]),
        "--num-prompts", str(load["number"]), "--seed", str(load["seed"]), "--temperature", "0",
        "--extra-body", json.dumps(load["body"]), "--disable-tqdm",
        "--save-result", "--save-detailed", "--result-dir", folder, "--result-filename", "said.json",
    ]  # fmt: skip
    words += ["--request-rate", str(load["rate"])] if load["rate"] else []
    words += ["--max-concurrency", str(load["concurrency"])] if load["concurrency"] else []
    words += ["--logprobs", str(load["logprobs"])] if load["logprobs"] else []
    return words + (["--ignore-eos"] if load["ignore_eos"] else [])


def one(serve: Any, parser: Any, given: argparse.Namespace, load: dict[str, Any]) -> dict[str, Any]:
    """One load: what vLLM's client saw of each request, and the processor time it took for that."""
    with tempfile.TemporaryDirectory() as folder:
        args = parser.parse_args(_words(given, load, folder))
        burnt = [0.0]

        async def benchmark(*words: Any, **named: Any) -> Any:
            began = _cpu_s()  # prompts are made before, and are no part of the load
            try:
                return await whole(*words, **named)
            finally:
                burnt[0] = _cpu_s() - began

        whole, serve.benchmark = serve.benchmark, benchmark
        try:
            with contextlib.redirect_stdout(sys.stderr):
                serve.main(args)
        finally:
            serve.benchmark = whole
        said = json.loads((Path(folder) / "said.json").read_text(encoding="utf-8"))
    rows = zip(
        said["start_times"], said["ttfts"], said["itls"], said["output_lens"], said["errors"], strict=True
    )
    return {
        "seconds": said["duration"],
        "cpu_s": burnt[0],
        "completed": said["completed"],
        "failed": said.get("failed"),
        "input_tokens": said["total_input_tokens"],
        "output_tokens": said["total_output_tokens"],
        "requests": [
            [sent, first, sum(gaps), max(gaps, default=0.0), tokens, len(gaps) + bool(first), (error or "")[-300:]]
            for sent, first, gaps, tokens, error in rows
        ],
    }  # fmt: skip


def main() -> None:
    """Answer loads until the input ends."""
    own = argparse.ArgumentParser()
    own.add_argument("--url", required=True)
    own.add_argument("--model", required=True)
    own.add_argument("--tokenizer", required=True)
    given = own.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever vLLM prints goes to the log
    began = time.perf_counter()
    try:
        from vllm.benchmarks import serve
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        parser = FlexibleArgumentParser()
        serve.add_cli_args(parser)
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}), file=answers)
        return
    print(json.dumps({"ready": True, "import_s": round(time.perf_counter() - began, 2)}), file=answers)
    for line in sys.stdin:
        try:
            answer = one(serve, parser, given, json.loads(line))
        except (Exception, SystemExit) as why:
            answer = {"error": f"{type(why).__name__}: {why}"}
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
