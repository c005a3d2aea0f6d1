"""Run by the target interpreter: does torch load, what does it see, and what do the driver and the runtime answer?

Prints one JSON object. ``driver`` is cuInit's code and the CUDA version of libcuda (13000 is 13.0), or why libcuda does
not load; ``runtime`` is cudaGetDeviceCount's code, in numbers and by name, from the libcudart torch has loaded.
"""

import ctypes
import json
import re
import time
from pathlib import Path
from typing import Any


def driver() -> dict[str, Any]:
    """What the driver's library answers, asked as every CUDA program asks it."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as why:
        return {"error": str(why)}
    version = ctypes.c_int(0)
    code = library.cuInit(0)
    library.cuDriverGetVersion(ctypes.byref(version))
    return {"cuinit": code, "cuda": version.value}


def runtime() -> dict[str, Any]:
    """What the CUDA runtime in this process answers; empty in a torch that has none."""
    loaded = re.search(r"/\S+/libcudart\.so[.0-9]*$", Path("/proc/self/maps").read_text(), re.MULTILINE)
    if not loaded:
        return {}
    library = ctypes.CDLL(loaded[0])
    library.cudaGetErrorName.restype = ctypes.c_char_p
    count = ctypes.c_int(0)
    code = library.cudaGetDeviceCount(ctypes.byref(count))
    return {"code": code, "name": library.cudaGetErrorName(code).decode()}


def main() -> None:
    """Print the facts, or why torch does not load."""
    started = time.perf_counter()
    try:
        import torch
    except Exception as why:
        print(json.dumps({"error": f"{type(why).__name__}: {why}"}))
        return
    import_s = time.perf_counter() - started
    names: list[str] = []
    init_error = ""
    try:
        # Fails with error 803 (a cuda-compat of another driver) although NVML counts the cards, and for a setting of the
        # allocator that it does not know: both seen on an H200.
        torch.cuda.init()
        names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
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
                "names": names,
                "init_error": init_error,
                "arch_list": torch.cuda.get_arch_list(),
                "threads": torch.get_num_threads(),
                "cpu_capability": torch.backends.cpu.get_cpu_capability(),
                "driver": driver(),
                "runtime": runtime(),
            }
        )
    )


if __name__ == "__main__":
    main()
