"""Run by the target interpreter: does vLLM load, for which platform, and what does its own parser accept?

Prints one JSON object. ``flags`` are the option strings of the server's own argument parser, so that a planned command
is judged by the version that will read it; an argument error at start costs 16 s before it shows. ``options_sha256``
stands for everything else the parser says of them (types, choices, defaults); ``--options all`` prints it too, as
``options``, which is what ``stacks/*/flags.json`` are made of.

A GPU build without a GPU in sight refuses to build its parser, although only one line of it wants to know the device:
then the device is taken to be CUDA for that line, and ``parser_device`` says so. Measured for 0.19.1: the option list
is, to the last default, the one of the CPU build of the same release.
"""

import argparse
import hashlib
import inspect
import json
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Print the facts, or why vLLM does not load."""
    words = argparse.ArgumentParser()
    words.add_argument("--options", default="none", choices=("none", "all"))
    asked = words.parse_args().options
    started = time.perf_counter()
    try:
        import vllm
        from vllm import platforms

        platform = platforms.current_platform
        facts: dict[str, Any] = {
            "version": vllm.__version__,
            "import_s": round(time.perf_counter() - started, 2),
            "platform": platform.device_type or "unspecified",
            "extensions": loaded_extensions(platform),
        }
        if not platform.device_type:
            platform.device_type = "cuda"
            facts["parser_device"] = "cuda, assumed: none is in sight"
        else:
            facts["parser_device"] = platform.device_type
        options = parser_options()
        facts["flags"] = sorted(name for one in options for name in one["names"] if name.startswith("--"))
        facts["options_sha256"] = hashlib.sha256(
            json.dumps(options, sort_keys=True, separators=(",", ":")).encode()
        ).hexdigest()
        if asked == "all":
            facts["options"] = options
        from vllm.model_executor.models.registry import ModelRegistry

        known = ModelRegistry.get_supported_archs()
        facts["qwen_archs"] = sorted(
            name for name in known if name.startswith(("Qwen3_5", "Qwen3For", "Qwen3Next"))
        )
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    print(json.dumps(facts))


def loaded_extensions(platform: Any) -> list[str]:
    """Names of vLLM's libraries in this process after the platform loaded its own.

    Loading them all by name would end the process: the AVX2 and AVX-512 builds register the same operators. They are
    read from the process's own map, since some builds' files export no module of their name and still load.
    """
    platform.import_kernels()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return sorted(
        {
            Path(line.split()[-1]).name
            for line in maps.splitlines()
            if "/vllm/" in line and line.endswith(".so")
        }
    )


def parser_options() -> list[dict[str, Any]]:
    """Each option of the server's parser: names, what it takes, choices, default, whether it is deprecated."""
    from vllm.entrypoints.cli.serve import make_arg_parser  # where it is defined moved between 0.19 and 0.32
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    old: set[Any] = getattr(parser, "_deprecated", set())
    found = []
    for action in parser._actions:  # noqa: SLF001 - argparse offers no public list
        if not action.option_strings:
            continue
        one: dict[str, Any] = {"names": sorted(action.option_strings), "takes": takes(action)}
        if isinstance(action.nargs, str):
            one["nargs"] = action.nargs
        if action.choices is not None:
            one["choices"] = [str(each) for each in action.choices]
        if action.default is not argparse.SUPPRESS:
            one["default"] = plain(action.default)
        if action in old or getattr(action, "deprecated", False):
            one["deprecated"] = True
        found.append(one)
    return sorted(found, key=lambda one: one["names"])


def takes(action: Any) -> str:
    """Kind of value: none, bool (with a --no- form), int, float, count (``8k``), json, text or other."""
    if action.nargs == 0:
        return "bool" if isinstance(action, argparse.BooleanOptionalAction) else "none"
    kind = action.type
    # vLLM wraps a type to let "None" or an empty word through; the type itself is in the wrapper's closure.
    optional = "optional_type" in getattr(kind, "__qualname__", "")
    while "return_type" in (
        inner := inspect.getclosurevars(kind).nonlocals if inspect.isfunction(kind) else {}
    ):
        kind = inner["return_type"]
    names = {
        int: "int", float: "float", str: "text", None: "text", json.loads: "json",
        "human_readable_int": "count", "human_readable_int_or_auto": "count or auto", "parse_dataclass": "json",
        "union_dict_and_str": "text",
    }  # fmt: skip
    found = names.get(kind) or names.get(getattr(kind, "__name__", ""), "other")
    return f"{found} or none" if optional else found


def plain(value: Any) -> Any:
    """A default as JSON holds it; of an object its class only, since its text may name this machine."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return f"<{type(value).__name__}>"


if __name__ == "__main__":
    main()
