"""Run by the target interpreter: does vLLM load, for which platform, and what does its own parser accept?

Prints one JSON object. ``flags`` are the option strings of the server's own argument parser, so that a planned command
is judged by the version that will read it; an argument error at start costs 16 s before it shows.
"""

import json
import time
from pathlib import Path


def main() -> None:
    """Print the facts, or why vLLM does not load."""
    started = time.perf_counter()
    try:
        import vllm
        from vllm.platforms import current_platform

        import_s = time.perf_counter() - started
        # The platform loads the extension built for its processor or card. Loading them all by name would end the
        # process: the AVX2 and AVX-512 builds register the same operators.
        current_platform.import_kernels()
        # Read from the process's own map: some builds' files export no module of their name and still load.
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
        extensions = sorted(
            {
                Path(line.split()[-1]).name
                for line in maps.splitlines()
                if "/vllm/" in line and line.endswith(".so")
            }
        )
        from vllm.entrypoints.cli.serve import (
            make_arg_parser,
        )  # where it is defined moved between 0.19 and 0.32
        from vllm.model_executor.models.registry import ModelRegistry
        from vllm.utils.argparse_utils import FlexibleArgumentParser

        parser = make_arg_parser(FlexibleArgumentParser())
        flags = sorted(parser._option_string_actions)  # noqa: SLF001 - argparse offers no public list
        known = ModelRegistry.get_supported_archs()
        facts = {
            "version": vllm.__version__,
            "import_s": round(import_s, 2),
            "platform": current_platform.device_type or "unspecified",
            "extensions": extensions,
            "flags": [flag for flag in flags if flag.startswith("--")],
            "qwen_archs": sorted(
                name for name in known if name.startswith(("Qwen3_5", "Qwen3For", "Qwen3Next"))
            ),
        }
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
