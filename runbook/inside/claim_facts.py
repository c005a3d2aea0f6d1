"""Run by the target interpreter: what its libraries answer to the probes of the claims ledger, all in one start.

``--asked`` is JSON, a list of questions, each ``{"about": "value" | "flags" | "fact", ...}``; the answer is printed as
``{"answers": [...]}`` in the same order, each ``{"value": ...}`` or what kept it from one: ``missing`` (no such name),
``raised`` (a call ended so), ``error`` (the library itself does not load). See ``runbook/claims/probes/interpreter.py``.

A GPU build without a GPU in sight takes its device for CUDA here, as ``vllm_facts`` says.
"""

import argparse
import contextlib
import importlib
import importlib.util
import inspect
import io
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LONGEST = 2000
DEMO = "vllm.entrypoints.api_server"
SERVER = "vllm.entrypoints.openai.api_server"


class Missing(Exception):
    """There is no such name; the text says which."""


def main() -> None:
    """Print the answers."""
    words = argparse.ArgumentParser()
    words.add_argument("--asked", required=True)
    asked = json.loads(words.parse_args().asked)
    os.environ["HF_HUB_OFFLINE"] = "1"
    print(json.dumps({"answers": [answer(one) for one in asked]}))


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """One answer; whatever goes wrong is one too."""
    try:
        return {"value": value, "flags": flags, "fact": fact}[asked["about"]](asked)
    except Missing as why:
        return {"missing": str(why)}
    except Exception as why:
        return {"error": said(why)}


def said(why: BaseException) -> str:
    """An error in one line."""
    return f"{type(why).__name__}: {why}"[:LONGEST]


def value(asked: dict[str, Any]) -> dict[str, Any]:
    """The object of a dotted name: itself, the default of one of its arguments, or what it returns when called."""
    found = resolved(asked["of"])
    if "argument" in asked:
        arguments = inspect.signature(found).parameters
        if asked["argument"] not in arguments:
            raise Missing(f"{asked['of']} has no argument {asked['argument']}")
        default = arguments[asked["argument"]].default
        return {"value": "no default" if default is inspect.Parameter.empty else plain(default)}
    if "call" in asked:
        try:
            found = found(*asked["call"])
        except Exception as why:
            return {"raised": said(why)}
    return {"value": plain(found)}


def resolved(name: str) -> Any:
    """The object behind a dotted name: the longest part of it that is a module, then attributes.

    Raises:
        Missing: the package is there and the name is not.
        ModuleNotFoundError: the package itself is not installed, or lacks one that it needs.
    """
    parts = name.split(".")
    found = importlib.import_module(parts[0])
    for at, part in enumerate(parts[1:], 1):
        if not hasattr(found, part):
            path = ".".join(parts[: at + 1])
            try:
                importlib.import_module(path)
            except ModuleNotFoundError as why:
                if why.name != path:
                    raise
                raise Missing(f"{'.'.join(parts[:at])} has no {part}") from None
        found = getattr(found, part)
    return found


def plain(found: Any) -> Any:
    """A value as JSON holds it: of a mapping its keys, of a class or function its name, of anything else its text."""
    if isinstance(found, (str, int, float, bool)) or found is None:
        return found
    if isinstance(found, dict):
        return sorted(str(key) for key in found)
    if isinstance(found, (list, tuple, set, frozenset)):
        return [plain(one) for one in found]
    return getattr(found, "__name__", None) or str(found)


def with_a_device() -> None:
    """Let vLLM's configs be made where no device is in sight."""
    from vllm import platforms

    if not platforms.current_platform.device_type:
        platforms.current_platform.device_type = "cuda"


def server_parser(form: str) -> Any:
    """The parser of ``vllm serve``, of the server's module, or of the engine's options alone (``demo``).

    Raises:
        Missing: this release has no such server.
    """
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    with_a_device()
    parser = FlexibleArgumentParser(prog="vllm" if form == "serve" else SERVER)
    if form == "demo":
        from vllm.engine.arg_utils import AsyncEngineArgs

        if importlib.util.find_spec(DEMO) is None:
            raise Missing(f"there is no {DEMO}")
        return AsyncEngineArgs.add_cli_args(parser)
    if form == "module":
        from vllm.entrypoints.cli.serve import (
            make_arg_parser,
        )  # where it is defined moved between 0.19 and 0.32

        return make_arg_parser(parser)
    from vllm.entrypoints.cli.serve import ServeSubcommand

    ServeSubcommand().subparser_init(parser.add_subparsers(dest="subparser"))
    return parser


def flags(asked: dict[str, Any]) -> dict[str, Any]:
    """What becomes of a command line: accepted or refused, what was said, and the values asked for."""
    parser = server_parser(asked["form"])
    heard, logged = io.StringIO(), logging.StreamHandler(io.StringIO())
    logger = logging.getLogger("vllm")
    logger.addHandler(logged)
    given = [*(["serve"] if asked["form"] == "serve" else []), *asked["words"]]
    parsed, code = None, 0
    try:
        with contextlib.redirect_stderr(heard), contextlib.redirect_stdout(heard):
            try:
                parsed = parser.parse_args(given)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
    finally:
        logger.removeHandler(logged)
    printed = heard.getvalue()
    # Of an argument error its line only: the usage before it names every flag there is.
    text = printed[printed.rfind("error:") :] if code and "error:" in printed else printed
    text += logged.stream.getvalue()
    sets = {name: plain(getattr(parsed, name, "no such option")) for name in asked["sets"]} if parsed else {}
    outcome = "accepted" if parsed else "refused" if code else "shown"
    return {"value": {"outcome": outcome, "said": text[-LONGEST:].strip(), "sets": sets}}


def fact(asked: dict[str, Any]) -> dict[str, Any]:
    """A computed fact by its name."""
    known: dict[str, Callable[..., dict[str, Any]]] = {
        "engine": engine,
        "rope": rope,
        "page": page,
        "state": state,
        "registered": registered,
    }
    return {"value": known[asked["name"]](**asked["given"])}


@contextlib.contextmanager
def folder_with(config: dict[str, Any]) -> Iterator[str]:
    """A folder that holds this config.json and nothing else."""
    with tempfile.TemporaryDirectory(prefix="runbook-claim-") as folder:
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        yield folder


def engine(config: dict[str, Any], flags: list[str]) -> dict[str, Any]:
    """What vLLM makes of a model's config and a command line; no weights, no tokenizer."""
    from vllm.engine.arg_utils import EngineArgs

    with folder_with(config) as folder:
        asked = server_parser("serve").parse_args(["serve", folder, "--skip-tokenizer-init", *flags])
        asked.model = asked.model_tag  # as the command does, after its parser
        made = EngineArgs.from_cli_args(asked).create_engine_config()
    return {
        "architecture": made.model_config.architecture,
        "dtype": str(made.model_config.dtype),
        "max_model_len": made.model_config.max_model_len,
        "uses_mrope": made.model_config.uses_mrope,
        "prefix_caching": made.cache_config.enable_prefix_caching,
        "block_size": made.cache_config.block_size,
        "mamba_cache_mode": made.cache_config.mamba_cache_mode,
        "mamba_ssm_dtype": str(made.cache_config.mamba_ssm_cache_dtype),
        "chunked_prefill": made.scheduler_config.enable_chunked_prefill,
        "max_num_seqs": made.scheduler_config.max_num_seqs,
        "max_num_batched_tokens": made.scheduler_config.max_num_batched_tokens,
        "compile_mode": int(made.compilation_config.mode),
        "cudagraph_mode": made.compilation_config.cudagraph_mode.name,
        "executor": str(made.parallel_config.distributed_executor_backend),
    }


def rope(config: dict[str, Any]) -> dict[str, Any]:
    """The rotary embedding that vLLM builds for the text part of a config."""
    import torch
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.model_executor.layers.rotary_embedding import get_rope
    from vllm.transformers_utils.config import get_config

    with_a_device()
    with folder_with(config) as folder:
        text = get_config(folder, trust_remote_code=False).get_text_config()
    parameters = text.rope_parameters
    size = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    with set_current_vllm_config(VllmConfig()):
        made = get_rope(size, text.max_position_embeddings, rope_parameters=parameters, dtype=torch.float32)
    return {
        "class": type(made).__name__,
        "base": made.base,
        "mrope_section": getattr(made, "mrope_section", None),
        "rope_parameters": parameters,
    }


def page(kv_heads: int, head_size: int, dtype: str) -> dict[str, Any]:
    """Bytes of one token in the cache of one full-attention layer."""
    import torch
    from vllm.v1.kv_cache_interface import FullAttentionSpec

    made = FullAttentionSpec(
        block_size=1, num_kv_heads=kv_heads, head_size=head_size, dtype=getattr(torch, dtype)
    )
    return {"bytes_per_token": made.page_size_bytes}


def state(k_heads: int, v_heads: int, k_dim: int, v_dim: int, conv: int) -> dict[str, Any]:
    """Bytes of one sequence's recurrent state in one gated delta net layer: a bfloat16 window, a float32 matrix."""
    import torch
    from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator
    from vllm.v1.kv_cache_interface import MambaSpec

    shapes = MambaStateShapeCalculator.gated_delta_net_state_shape(1, k_heads, v_heads, k_dim, v_dim, conv)
    made = MambaSpec(shapes=shapes, dtypes=(torch.bfloat16, torch.float32), block_size=-1)
    return {"bytes": made.page_size_bytes}


def registered(architecture: str) -> dict[str, Any]:
    """Whether vLLM has a class for an architecture of a config.json."""
    from vllm.model_executor.models.registry import ModelRegistry

    return {"there": architecture in ModelRegistry.get_supported_archs()}


if __name__ == "__main__":
    main()
