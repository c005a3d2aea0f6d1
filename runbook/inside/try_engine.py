"""Run by the target interpreter: try to load a checkpoint with vLLM in this process and say what it dies of.

``--path DIR``. Prints one JSON object: ``{"loaded": true}``, or ``root`` (the first exception of the chain, one line)
and ``where`` (function and file in which it was raised).
"""

import argparse
import json
import os
import traceback
from pathlib import Path


def main() -> None:
    """Try it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--path", required=True)
    path = parser.parse_args().path
    os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1")
    try:
        from vllm import LLM

        LLM(model=path, enforce_eager=True, max_model_len=512)
    except BaseException as why:
        first: BaseException = why
        while first.__cause__ or first.__context__:
            first = first.__cause__ or first.__context__  # type: ignore[assignment]
        frame = traceback.extract_tb(first.__traceback__)[-1]
        root = "".join(traceback.format_exception_only(type(first), first)).strip().splitlines()[0]
        print(json.dumps({"root": root, "where": f"{frame.name} ({Path(frame.filename).name})"}))
        return
    print(json.dumps({"loaded": True}))


if __name__ == "__main__":
    main()
