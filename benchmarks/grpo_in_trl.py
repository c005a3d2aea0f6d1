"""The part of ``grpo.py`` that runs in TRL's environment: GRPO whose rollouts come from a server at an address.

``--url URL --policy FOLDER --out FILE [--learning-rate RATE]``, the server's key in $VLLM_API_KEY. After each step the
weights are written into the policy's folder and reloaded from there; ``FILE`` gets one JSON object.
"""

import argparse
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import httpx
import torch
import transformers
import trl  # type: ignore[import-not-found]
from datasets import Dataset  # type: ignore[import-not-found]
from safetensors.torch import load_file, save_file

from runbook.parity import importance

STEPS, GENERATIONS, PROMPTS, TOKENS, SCORED = 2, 8, 2, 32, 4
TEXT = (
    "The harbour master wrote down which ships came in, what they carried and how long each of them stayed. "
)
# Tokens of the prompt, tokens of the answer, log-probabilities of these as served.
Row = tuple[list[int], list[int], list[float]]


@dataclass
class Server:
    """The policy's server, and what came of each round of rollouts."""

    url: str
    weights: Path
    types: dict[str, torch.dtype]
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        """Ask; raises ``httpx.HTTPStatusError`` for anything but an answer."""
        key = {"Authorization": f"Bearer {os.environ['VLLM_API_KEY']}"}
        reply = httpx.post(f"{self.url}{path}", json=body, headers=key, timeout=300.0, trust_env=False)
        reply.raise_for_status()
        return reply.json() if reply.text else None

    def sampled(self, prompt: str, n: int) -> list[Row]:
        """``n`` answers to a prompt, from the whole distribution at temperature 1."""
        body = {
            "model": "served", "prompt": prompt, "n": n, "max_tokens": TOKENS, "temperature": 1.0, "top_p": 1.0, "top_k": -1,
            "logprobs": 0, "return_token_ids": True,
        }  # fmt: skip
        choices = self.post("/v1/completions", body)["choices"]
        ids = choices[0]["prompt_token_ids"]
        return [(ids, one["token_ids"], one["logprobs"]["token_logprobs"]) for one in choices]

    def rollout(self, prompts: list[str], trainer: Any) -> dict[str, Any]:  # noqa: ANN401 - TRL's
        """TRL's ``rollout_func``: bring the server up to date, then one answer for each prompt, which come n times each."""
        model = trainer.accelerator.unwrap_model(trainer.model)
        each = sorted(set(prompts))
        one: dict[str, Any] = {"step": trainer.state.global_step}
        if one["step"]:
            one["gap_of_old_policy"] = gap(
                model, [row for prompt in each for row in self.sampled(prompt, SCORED)]
            )
            one |= self.renew(model)
            one["gap_before_reset"] = gap(
                model, [row for prompt in each for row in self.sampled(prompt, SCORED)]
            )
            self.post("/reset_prefix_cache")
        began = time.perf_counter()
        rows = [row for prompt, same in groupby(prompts) for row in self.sampled(prompt, len(list(same)))]
        one |= {"rollout_s": time.perf_counter() - began, "samples": len(rows), "gap": gap(model, rows)}
        self.rounds.append(one)
        ids, answers, logprobs = (list(column) for column in zip(*rows, strict=True))
        return {"prompt_ids": ids, "completion_ids": answers, "logprobs": logprobs}

    def renew(self, model: Any) -> dict[str, float]:  # noqa: ANN401 - TRL's
        """Write the weights under the checkpoint's names and in its types, and have them reloaded; seconds of either."""
        began = time.perf_counter()
        weights = {
            name: value.detach().to(self.types[name]).contiguous()
            for name, value in model.state_dict().items()
        }
        # Beside it and then over it: the server may still have the old file mapped.
        beside = self.weights.with_suffix(".new")
        save_file(weights, beside, metadata={"format": "pt"})
        beside.replace(self.weights)
        written = time.perf_counter()
        self.post(
            "/collective_rpc",
            {"method": "reload_weights", "kwargs": {"weights_path": str(self.weights.parent)}},
        )
        return {"written_s": written - began, "reloaded_s": time.perf_counter() - written}


def gap(model: Any, rows: Sequence[Row]) -> dict[str, float]:  # noqa: ANN401 - TRL's
    """The served log-probabilities against those of the weights that are being trained."""
    served: list[float] = []
    trained: list[float] = []
    with torch.no_grad():
        for prompt, ids, logprobs in rows:
            logits = model(input_ids=torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float()
            chosen = torch.log_softmax(logits, -1).gather(-1, torch.tensor(ids)[:, None])[:, 0]
            served += logprobs
            trained += chosen.tolist()
    off = [abs(a - b) for a, b in zip(served, trained, strict=True)]
    seen = importance(served, trained)
    return {"mean": sum(off) / len(off), "largest": max(off), "outside_5": seen.outside_5, "k3": seen.k3}


def reward(completions: list[str], **_: object) -> list[float]:
    """Share of plain letters: something that can be learnt, and differs between samples."""
    return [
        sum(letter.isascii() and letter.isalpha() for letter in one) / max(1, len(one)) for one in completions
    ]


def main() -> None:
    """Train two steps, and write what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    asked = parser.parse_args()
    weights = asked.policy / "model.safetensors"
    server = Server(asked.url, weights, {name: value.dtype for name, value in load_file(weights).items()})
    config = json.loads((asked.policy / "config.json").read_text(encoding="utf-8"))
    # In float32, as is usual for training; served is what the checkpoint's type makes of it.
    model = getattr(transformers, config["architectures"][0]).from_pretrained(
        asked.policy, dtype=torch.float32
    )
    trainer = trl.GRPOTrainer(
        model=model,
        reward_funcs=reward,
        processing_class=transformers.AutoTokenizer.from_pretrained(asked.policy),
        train_dataset=Dataset.from_list([{"prompt": f"Report {number}. {TEXT * 6}"} for number in range(PROMPTS)]),
        rollout_func=server.rollout,
        args=trl.GRPOConfig(
            output_dir=str(asked.out.parent / "trl"), max_steps=STEPS, per_device_train_batch_size=GENERATIONS * PROMPTS,
            num_generations=GENERATIONS, max_completion_length=TOKENS, learning_rate=asked.learning_rate, logging_steps=1,
            use_cpu=True, report_to=[], save_strategy="no", beta=0.0, bf16=False, gradient_checkpointing=False,
        ),
    )  # fmt: skip
    before = {name: value.detach().clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    after = trainer.model.named_parameters()
    keys = ("reward", "loss", "grad_norm", "completions/mean_length", "entropy")
    found = {
        "trl": trl.__version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "rounds": server.rounds,
        "logged": [
            {key: row[key] for key in keys if key in row}
            for row in trainer.state.log_history
            if "loss" in row
        ],
        "largest_weight_change": max(
            float((value.detach() - before[name]).abs().max()) for name, value in after
        ),
    }
    asked.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
