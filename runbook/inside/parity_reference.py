"""Run by the target interpreter: the served model's greedy tokens and log-probabilities against transformers on a checkpoint.

``--path DIR --url URL [--model NAME] [--dtype auto|float32|bfloat16|float16] [--tokens N] [--prompts N] [--longest N]
[--limit X] [--most-gib N] [--key-env NAME]``. URL is the server's, with or without /v1. Prints one JSON object; with an
"error" key when it could not be done, with a "skip" key when there is no reference: it would take more memory than is
free, or than ``most-gib``, or the checkpoint is quantised.

The server is asked first: each prompt alone, then the plain ones in one request, then chat through its own template, at
temperature 0. Then transformers computes, in one forward pass a sequence, what the prompt and the tokens that the
server chose cost: teacher-forced. Where every chosen token is the reference's most probable one, greedy decoding with
the reference would have made the same text; up to the first token that is not, too; and behind it the two are still
compared over the same context, which two free-running texts are not.

It computes twice on the CPU: in the server's dtype ("reference"), and in a more precise one ("exact"). The distance
between the two is what rounding alone does to this very checkpoint; the server's distance to "exact" is judged by it.
When that is more than ``limit`` times as large, the exact reference is run again under named hypotheses.

Sequences run one at a time: a padded batch would put padding through the recurrent layers of Qwen3.5.
"""

import argparse
import contextlib
import copy
import json
import math
import os
import re
import struct
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Every kind of text once, so that a few prompts already differ; long ones are made of all of them.
PLAIN = {
    "english": "The server reads the weights, reserves memory for the cache and only then opens the port.",
    "chinese": "如果进程停止了就先看日志里的第一个错误。最后一个只是它的影子。",
    "long": "",
    "code": "def share(total: int, parts: int) -> list[int]:\n    whole, rest = divmod(total, parts)\n",
    "emoji": "Ready 🚀 warm 🔥 served 👨‍💻 ✅",
    "half as long": "",
    "one word": "Hello",
    "question": "What is the capital of France?",
    "json": '{"model": "served", "messages": [{"role": "user", "content": "Hi"}], "n": 1}',
    "numbers": "3.14159 2.71828 1.41421 1,000,000 0x7f 1e-6 192 + 64 = 256",
    "mixed": "GPU 显存有 80 GiB, KV cache 占 40%。",
    "japanese": "最初のトークンまでの時間を測る。",
    "korean": "먼저 재고 그 다음에 하나만 바꾼다.",
    "arabic": "السؤال الأول أهم من الأخير",
    "shell": "for i in $(seq 3); do curl -sf http://localhost:8000/health && break; done\n",
    "sql": "SELECT name, count(*) FROM runs WHERE verdict <> 'ok' GROUP BY name ORDER BY 2 DESC;",
    "list": "1. Measure.\n2. Change one thing.\n3. Measure again.\n4.",
    "table": "| layer | verdict |\n| --- | --- |\n| host | ok |\n| model |",
    "spaces": "  two  spaces\tand a tab\n\n\nand three line ends",
    "repeats": "again and again and again and again and again and",
    "capitals": "WARNING: THE DRIVER IS OLDER THAN THE LIBRARY",
    "mathematics": "∑ xᵢ² ≤ (∑ |xᵢ|)², √2 ≈ 1.414, π > 3",
}
CHAT = {
    "chat, thinking on": ("Say something about the machine.", True),
    "chat, thinking off": ("Say something about the machine.", False),
    "chat in chinese, thinking on": (PLAIN["chinese"], True),
    "chat in chinese, thinking off": (PLAIN["chinese"], False),
}
MARGIN = 64  # tokens kept free below the server's limit
# Nothing but the model decides: a server applies sampling defaults of generation_config.json to what is not named.
GREEDY = {
    "temperature": 0.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "presence_penalty": 0.0,
    "frequency_penalty": 0.0, "ignore_eos": True, "return_token_ids": True,
}  # fmt: skip
PRECISER = {"bfloat16": "float32", "float16": "float32", "float32": "float64"}
LOWER = {"float32": ("bfloat16", "float16"), "float16": ("bfloat16",), "bfloat16": ()}
BYTES = {"float32": 4, "float64": 8}
GIB = 1 << 30
# Keys of a config.json that decide nothing about what is computed.
IDLE_KEYS = re.compile(r"(^|\.)(transformers_version|_name_or_path|dtype|torch_dtype|use_cache)$")
WHOLE_KEYS = ("rope_scaling", "quantization_config")
# Base frequencies that Qwen models and old defaults have.
THETAS = (10_000.0, 1_000_000.0, 10_000_000.0)
# Hypotheses that are no edit of a config.json.
TIED = "the head tied to the embedding"
WHOLE = "the served folder, weights and all"
Row = dict[str, Any]


class Server:
    """An OpenAI-compatible server of vLLM; ``key`` may be empty."""

    def __init__(self, url: str, key: str, model: str) -> None:
        self.base = url.rstrip("/").removesuffix("/v1")
        # A proxy of the environment is for the world outside, not for a server on this machine.
        local = re.match(r"https?://(127\.|localhost|\[::1\])", self.base)
        self.opener = urllib.request.build_opener(*([urllib.request.ProxyHandler({})] if local else []))
        self.headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {key}"} if key else {}
        )
        served = self.ask("/v1/models")["data"]
        named = [one for one in served if model in ("", one["id"])]
        if not named:
            raise ValueError(f"the server serves {', '.join(one['id'] for one in served)}, not {model}")
        self.model = named[0]["id"]
        self.limit = int(named[0]["max_model_len"])
        self.root = str(named[0].get("root") or "")

    def ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The JSON of one answer; what the server says of a refusal is kept."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, self.headers)  # noqa: S310 - the URL is the user's own
        try:
            with self.opener.open(request, timeout=300) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as why:
            said = why.read(2000).decode(errors="replace")
            raise ValueError(f"{path} answered {why.code}: {said}") from why

    def completed(self, prompts: list[str], tokens: int) -> list[Any]:
        """The choices for prompts sent in one request."""
        asked = {"model": self.model, "prompt": prompts, "max_tokens": tokens, "logprobs": 1, **GREEDY}
        choices = self.ask("/v1/completions", asked)["choices"]
        return sorted(choices, key=lambda one: one["index"])

    def chatted(self, text: str, tokens: int, *, thinking: bool) -> Any:
        """One chat answer in the form of a completion's choice."""
        asked = {
            "model": self.model, "messages": [{"role": "user", "content": text}], "max_tokens": tokens,
            "logprobs": True, "chat_template_kwargs": {"enable_thinking": thinking}, **GREEDY,
        }  # fmt: skip
        answer = self.ask("/v1/chat/completions", asked)
        choice = answer["choices"][0]
        choice["prompt_token_ids"] = answer.get("prompt_token_ids")
        choice["logprobs"] = {"token_logprobs": [one["logprob"] for one in choice["logprobs"]["content"]]}
        return choice


def row(name: str, how: str, choice: Any) -> Row:
    """What is kept of one answer."""
    if not choice.get("token_ids") or not choice.get("prompt_token_ids"):
        raise ValueError("this release of vLLM does not return token ids (return_token_ids)")
    served = choice["logprobs"]["token_logprobs"]
    if len(served) != len(choice["token_ids"]):
        raise ValueError(f"{name}: {len(choice['token_ids'])} tokens and {len(served)} log-probabilities")
    return {"name": name, "how": how, "prompt": choice["prompt_token_ids"], "tokens": choice["token_ids"], "served": served}  # fmt: skip


def texts(tokenizer: Any, longest: int) -> dict[str, str]:
    """The plain prompts, the long ones filled with lines of all the others."""
    short = [text for text in PLAIN.values() if text]

    def filled(length: int) -> str:
        lines: list[str] = []
        total = 0
        for number in range(length):
            line = f"{number}. {short[number % len(short)]} {number * 37}\n"
            total += len(tokenizer.encode(line))
            if total > length:
                break
            lines.append(line)
        return "".join(lines)

    sizes = {"long": longest, "half as long": longest // 2}
    return {name: text or filled(sizes[name]) for name, text in PLAIN.items()}


def asked(
    server: Server, tokenizer: Any, tokens: int, prompts: int, longest: int
) -> tuple[list[Row], list[dict[str, Any]]]:
    """Rows of all answers, and the prompts that the server turned into other token ids than the reference's tokenizer."""
    plain = dict(list(texts(tokenizer, min(longest, server.limit - tokens - MARGIN)).items())[:prompts])
    rows = [row(name, "alone", server.completed([text], tokens)[0]) for name, text in plain.items()]
    rows += [
        row(name, "batch", choice)
        for name, choice in zip(plain, server.completed(list(plain.values()), tokens), strict=True)
    ]
    wanted = {("alone", name): tokenizer.encode(text) for name, text in plain.items()}
    for name, (text, thinking) in list(CHAT.items())[: max(2, prompts // 5)]:
        rows.append(row(name, "chat", server.chatted(text, tokens, thinking=thinking)))
        wanted["chat", name] = tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, enable_thinking=thinking,
            tokenize=True, return_dict=False,
        )  # fmt: skip
    differ = []
    for one in rows:
        ids = wanted.get((one["how"], one["name"]))
        if ids is not None and list(ids) != one["prompt"]:
            at = next((n for n, (a, b) in enumerate(zip(ids, one["prompt"], strict=False)) if a != b), min(len(ids), len(one["prompt"])))  # fmt: skip
            said = {"served": one["prompt"], "reference": list(ids)}
            differ.append(
                {"name": one["name"], "how": one["how"], "at": at}
                | {who: tokenizer.decode(line[max(0, at - 2) : at + 6]) for who, line in said.items()}
            )
    return rows, differ


def flat(value: Any, under: str = "") -> dict[str, Any]:
    """A nested JSON object with dotted keys. What means something only as a whole stays one value."""
    if not isinstance(value, dict) or under.endswith(WHOLE_KEYS):
        return {under: value}
    inner = [flat(one, f"{under}.{name}" if under else name) for name, one in value.items()]
    return {key: leaf for part in inner for key, leaf in part.items()}


def edited(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of a config with dotted keys set, or removed where the value is None."""
    new = copy.deepcopy(config)
    for key, value in changes.items():
        *path, last = key.split(".")
        place = new
        for name in path:
            place = place.setdefault(name, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    return new


def hypotheses(config: dict[str, Any], served: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """Name -> changed keys: first what the served config.json says otherwise, then what goes wrong by experience.

    The sections of M-RoPE are not among them: for text the three positions of a token are equal, and its rotation is the
    ordinary one (measured: not a bit changes without them). Nor is another order of layer_types: the weights do not fit.
    """
    found: dict[str, dict[str, Any]] = {}
    if served is not None:
        # Keys of another class of model mean nothing in this one; no picture is asked about; quantising needs its kernels.
        alike = served.get("model_type") == config.get("model_type")
        other = {
            key: pair
            for key, pair in differing(served, config).items()
            if not key.startswith(("vision_config.", "quantization_config"))
        }
        if alike:
            found |= {
                f"{key} = {pair[0]}, as in the served config.json": {key: pair[0]}
                for key, pair in other.items()
            }
        if alike and len(other) > 1:
            found["every key of the served config.json"] = {key: pair[0] for key, pair in other.items()}
        found[WHOLE] = {}
    text = "text_config." if "text_config" in config else ""
    keys = flat(config)
    places = [key for key in keys if key.startswith(text) and key.endswith("rope_theta")]
    for theta in THETAS:
        if places and all(keys[key] != theta for key in places):
            found[f"rope_theta = {theta:g}"] = dict.fromkeys(places, theta)
    partial = [key for key in keys if key.startswith(text) and key.endswith("partial_rotary_factor")]
    if any(keys[key] != 1.0 for key in partial):
        found["partial_rotary_factor = 1"] = dict.fromkeys(partial, 1.0)
    if not keys.get("tie_word_embeddings", keys.get(f"{text}tie_word_embeddings")):
        found[TIED] = {}
    return found


def differing(served: dict[str, Any], reference: dict[str, Any]) -> dict[str, list[Any]]:
    """Dotted key -> [served, reference] of what two configs say otherwise; an absent key is None."""
    ours, theirs = flat(reference), flat(served)
    return {
        key: [theirs.get(key), ours.get(key)]
        for key in sorted({*ours, *theirs})
        if theirs.get(key) != ours.get(key) and not IDLE_KEYS.search(key)
    }


def dtype_of(config: dict[str, Any]) -> str:
    """What vLLM's ``--dtype auto`` takes: the checkpoint's dtype, and bfloat16 for one of float32 (_resolve_auto_dtype)."""
    text = config.get("text_config", config)
    named = [part.get(key) for part in (text, config) for key in ("dtype", "torch_dtype")]
    found = str(next((one for one in named if one), "bfloat16")).removeprefix("torch.")
    return "bfloat16" if found == "float32" else found


def parameters(folder: Path) -> int:
    """Elements of all tensors, from the headers of the files."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        total += sum(math.prod(one["shape"]) for name, one in header.items() if name != "__metadata__")
    return total


def free_bytes() -> int:
    """Memory that can be had without swapping."""
    found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text(encoding="utf-8"))
    return int(found[1]) * 1024 if found else 0


class Reference:
    """transformers on the CPU, over the rows that the server answered."""

    def __init__(self, folder: Path, config: dict[str, Any], rows: list[Row]) -> None:
        self.folder = folder
        self.config = config
        self.rows = rows

    @contextlib.contextmanager
    def loaded(self, dtype: str, config: dict[str, Any], folder: Path) -> Iterator[Any]:
        """The model with a config of ours and the folder's weights."""
        import torch
        import transformers

        made = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(copy.deepcopy(config))
        kind = getattr(
            transformers, (config.get("architectures") or [""])[0], transformers.AutoModelForCausalLM
        )
        model = kind.from_pretrained(folder, config=made, dtype=getattr(torch, dtype), local_files_only=True)
        with torch.inference_mode():
            yield model.eval()

    def logprobs(
        self, dtype: str, changes: dict[str, Any] | None = None, *, tied: bool = False, folder: Path | None = None,
        config: dict[str, Any] | None = None,
    ) -> tuple[list[list[float]], list[list[float]]]:  # fmt: skip
        """For each row the log-probabilities of its tokens, and by how much each falls short of the most probable one."""
        import torch

        chosen, short = [], []
        known: dict[str, tuple[list[float], list[float]]] = {}
        asked_config = edited(config or self.config, changes or {})
        with self.loaded(dtype, asked_config, folder or self.folder) as model:
            if tied:
                model.get_output_embeddings().weight = model.get_input_embeddings().weight
            for one in self.rows:
                # An answer in company that is the answer alone needs no second pass.
                key = json.dumps([one["prompt"], one["tokens"]])
                if key not in known:
                    ids = torch.tensor([one["prompt"] + one["tokens"]])
                    kept = len(one["tokens"]) + 1
                    logits = model(input_ids=ids, use_cache=False, logits_to_keep=kept).logits[0, :-1]
                    # In the precision of the logits, but never below float32, as vLLM does.
                    wide = logits.float() if dtype != "float64" else logits
                    every = wide.log_softmax(-1)
                    ours = every.gather(1, torch.tensor(one["tokens"])[:, None])[:, 0]
                    known[key] = (ours.tolist(), (every.max(-1).values - ours).tolist())
                chosen.append(known[key][0])
                short.append(known[key][1])
        return chosen, short


def distance(one: list[list[float]], other: list[list[float]]) -> float:
    """Mean of the absolute differences."""
    pairs = [
        abs(a - b) for left, right in zip(one, other, strict=True) for a, b in zip(left, right, strict=True)
    ]
    return sum(pairs) / len(pairs)


def served_config(root: str, reference: Path) -> dict[str, Any] | None:
    """The config.json of the folder that is served, when it lies here and is not the reference itself."""
    folder = Path(root)
    if not root or not (folder / "config.json").is_file() or folder.samefile(reference):
        return None
    found: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return found


def told(args: argparse.Namespace) -> dict[str, Any]:
    """The whole comparison."""
    from transformers import AutoTokenizer, __version__

    folder = Path(args.path)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    dtype = dtype_of(config) if args.dtype == "auto" else args.dtype
    exact = PRECISER[dtype]
    needs, may = int(parameters(folder) * BYTES[exact] * 1.2), free_bytes()
    may = min(may, int(args.most_gib * GIB)) if args.most_gib else may
    if needs > may:
        return {"skip": f"the reference needs {needs / GIB:.1f} GiB of memory and may take {may / GIB:.1f}"}
    if "quantization_config" in config:
        return {"skip": "the checkpoint is quantised: name what it was made from as the reference"}
    server = Server(args.url, os.environ.get(args.key_env, ""), args.model)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    rows, differ = asked(server, tokenizer, args.tokens, args.prompts, args.longest)
    reference = Reference(folder, config, rows)
    precise, short = reference.logprobs(exact)
    rounded, _ = reference.logprobs(dtype)
    served = [one["served"] for one in rows]
    beyond = distance(served, precise) > args.limit * distance(rounded, precise)
    theirs = served_config(server.root, folder)
    tried: dict[str, list[list[float]]] = {}
    lower: dict[str, list[list[float]]] = {}
    refused: dict[str, str] = {}
    if beyond:
        for name, changes in hypotheses(config, theirs).items():
            other = {"folder": Path(server.root), "config": theirs} if name == WHOLE else {"changes": changes, "tied": name == TIED}  # fmt: skip
            try:
                tried[name] = reference.logprobs(exact, **other)[0]
            except Exception as why:
                # transformers does not compute every config that an engine takes.
                refused[name] = f"{type(why).__name__}: {why}"[:200]
        lower = {name: reference.logprobs(name)[0] for name in LOWER[dtype]}
    return {
        "transformers": __version__,
        "dtype": dtype,
        "exact_dtype": exact,
        "max_model_len": server.limit,
        "prompts_differ": differ,
        "config_differs": {} if theirs is None else differing(theirs, config),
        "rows": [
            {
                "name": one["name"],
                "how": one["how"],
                "prompt_tokens": len(one["prompt"]),
                "tokens": one["tokens"],
            }
            | {"served": one["served"], "reference": middle, "exact": best, "short_by": gap}
            for one, middle, best, gap in zip(rows, rounded, precise, short, strict=True)
        ],
        "hypotheses": tried,
        "refused": refused,
        "lower": lower,
    }


def main() -> None:
    """Print the comparison, or why there is none."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--path", required=True)
    parser.add_argument("--url", required=True)
    parser.add_argument("--model", default="")
    parser.add_argument("--dtype", default="auto", choices=["auto", *PRECISER])
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=len(PLAIN))
    parser.add_argument("--longest", type=int, default=4000)
    parser.add_argument("--limit", type=float, default=1.5)
    parser.add_argument("--most-gib", type=float, default=0.0)
    parser.add_argument("--key-env", default="VLLM_API_KEY")
    args = parser.parse_args()
    # The reference computes on the CPU; the card, when there is one, is full with the server.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        answer = told(args)
    except Exception as why:
        answer = {"error": f"{type(why).__name__}: {why}"}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
