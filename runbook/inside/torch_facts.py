"""Run by the target interpreter: does torch load, and what does it see? Prints one JSON object."""

import json
import time


def main() -> None:
    """Print the facts, or why torch does not load."""
    started = time.perf_counter()
    try:
        import torch
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    import_s = time.perf_counter() - started
    init_error = ""
    if not torch.cuda.is_available():
        try:
            torch.cuda.init()
        except Exception as why:
            init_error = f"{type(why).__name__}: {why}"
    print(
        json.dumps(
            {
                "version": torch.__version__,
                "cuda": torch.version.cuda,
                "import_s": round(import_s, 2),
                "available": torch.cuda.is_available(),
                "gpus": torch.cuda.device_count(),
                "names": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
                "init_error": init_error,
                "arch_list": torch.cuda.get_arch_list(),
                "threads": torch.get_num_threads(),
                "cpu_capability": torch.backends.cpu.get_cpu_capability(),
            }
        )
    )


if __name__ == "__main__":
    main()
