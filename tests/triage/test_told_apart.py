"""Causes whose logs hold each other's lines, told apart: what logs taught that nobody had seen when rules were written.

The lines are what the programs print (names, sizes and addresses are made up); the logs are composed here.
"""

import pytest

from runbook import triage
from runbook.triage import judge

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 22.09 GiB of which 758.44 MiB is free."
PIP = "vllm 0.18.1 requires transformers<5,>=4.56.0, but you have transformers 5.3.0 which is incompatible."
NO_BLOCKS = "(EngineCore pid=589) ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."
PROFILE = '  File "/opt/vllm/v1/worker/gpu_worker.py", line 223, in determine_available_memory\n    self.model_runner.profile_run()'
GONE = "(APIServer pid=1) ERROR 05-05 14:59:18 [serving.py:1137] vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."
FABRIC = "nv-fabricmanager[1868]: fabric manager NVIDIA GPU driver interface version 595.71.05 don't match with driver version 590.48.01. Please update with matching NVIDIA driver package."
MOE = "WARNING 01-29 08:52:43 [fused_moe.py:882] Using default MoE config. Performance might be sub-optimal! Config file not found at /opt/E=160,N=192,device_name=NVIDIA_A100.json"
ECC = "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:364 'uncorrectable ECC error encountered'"
PEER = "Failed: Cuda error /workspace/csrc/custom_all_reduce.cuh:364 'invalid argument'"
RAY = "(autoscaler +45s) Error: No available node types can fulfill resource request\n  {'GPU': %s, 'node:10.3.1.11': 0.001}."
TOO_FEW = "WARNING [ray_utils.py:352] Tensor parallel size (16) exceeds available GPUs (8)."
TIME_OUT = "504 Server Error: Gateway Time-out for url: https://%s/api/models/Qwen/Qwen3.5-4B"
NVCC = "unable to execute '%s/bin/nvcc': No such file or directory"
FORK = "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method"
XID = "NVRM: Xid (PCI:0000:38:00): %d, pid=2924364, name=pt_main_thread, %s"
CACHED = '  File "/home/me/.cache/vllm/torch_compile_cache/78ef13/rank_0_0/inductor_cache/yv/cy.py", line 357, in call\n    assert_size_stride(arg0_1, (2560, ), (1, ))'
ROOM = "INFO [gpu_worker.py:563] Available KV cache memory: 41.03 GiB"
MNNVL = "(EngineCore pid=16) ERROR [core.py:1349]     from flashinfer.comm.mnnvl import CommBackend, SymmDeviceMemory"
OLD_PYTHON = "  File \"/opt/flashinfer/comm/fd_exchange.py\", line 55, in <module>\nTypeError: type 'array.array' is not subscriptable"
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
UNNAMED = "ValueError: There is no module or parameter named '%s' in %s"


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        ((PIP,), "transformers-too-new"),
        ((PIP, NO_BLOCKS), "no-memory-for-kv-blocks"),
        ((PROFILE, OOM), "activations-dont-fit"),
        (("INFO [enc_dec_model_runner.py:297] Starting profile run for multi-modal models.", PROFILE, OOM), "multimodal-profile-oom"),
        ((GONE,), "server-process-killed"),
        (("(EngineCore pid=175) torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", GONE), "gpu-hardware-ecc"),
        ((FABRIC,), "fabric-manager-not-running"),
        ((FABRIC, "Failed to initialize NVML: Driver/library version mismatch"), "driver-library-mismatch"),
        ((MOE, ECC), "gpu-hardware-ecc"),
        ((MOE, PEER), "custom-all-reduce-p2p"),
        ((TOO_FEW, RAY % "1.0"), "ray-node-ip-mismatch"),
        ((TOO_FEW, RAY % "16.0"), "tp-exceeds-gpus"),
        ((TIME_OUT % "huggingface.co",), "hf-offline"),
        ((TIME_OUT % "gateway.example.com",), "proxy-timeout"),
        ((NVCC % "/usr/local/cuda-12.8",), "nvcc-missing"),
        ((NVCC % "/usr/local/cuda-12.8:",), "cuda-home-wrong"),
        ((UNNAMED % ("language_model", "Gemma3ForConditionalGeneration"),), "checkpoint-written-by-newer-transformers"),
        ((UNNAMED % ("language_model", "Gemma3ForCausalLM"),), "checkpoint-config-mismatch"),
        ((UNNAMED % ("decoder", "Qwen3ForCausalLM"),), "checkpoint-config-mismatch"),
        (("FATAL: kernel `fmha_cutlassF_f16_aligned_64x128_rf_sm80` is for sm80-sm100, but was built for sm50",), "missing-sm-arch"),
        (("flashinfer/tma.cuh(41): error: namespace 'cuda::ptx' has no member 'n32_t'",), "nvcc-too-old-for-jit"),
        (("causal_conv1d.py:42 RuntimeError: Triton Error [CUDA]: operation not permitted when stream is capturing",), "gdn-cudagraph-bug"),
        ((FORK,), "cuda-before-fork"),
        ((XID % (31, "Ch 00000008, MMU Fault: ENGINE GRAPHICS"),), "gpu-program-fault"),
        (
            (XID % (31, "Ch 8, MMU Fault"), 'File "gdn_attn.py", line 9, in build', "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
            "gdn-illegal-memory-access",
        ),
        ((XID % (43, "Ch 00000008"), XID % (79, "GPU has fallen off the bus.")), "gpu-hardware-fault"),
        ((CACHED, "AssertionError: expected size 5376==2560, stride 1==1 at dim=0"), "compile-cache-stale"),
        ((ROOM, "(EngineCore pid=16) ERROR [core.py:1349] EngineCore failed to start.", MNNVL, OLD_PYTHON), "python-version-unsupported"),
        ((NO_KERNEL,), "missing-sm-arch"),
        (("GPU 0: NVIDIA GeForce GTX 1080 Ti", NO_KERNEL), "gpu-unsupported-by-wheel"),
        (("NVRM: (PCI ID: 10de:26b5) installed in this system has", "NVRM: fallen off the bus and is not responding to commands."), "gpu-hardware-fault"),
    ],
)  # fmt: skip
def test_the_cause_comes_first(lines: tuple[str, ...], first: str) -> None:
    read = triage.read_text("\n".join(lines))
    assert [one.key for one in read.causes][:1] == [first]
    assert read.verdict == judge.CAUSE


def test_a_fallback_for_an_old_card_is_no_failure() -> None:
    fallback = "WARNING [topk_topp_sampler.py:69] FlashInfer top-p/top-k sampling unavailable: unsupported compute capability 7.5; falling back."
    up = "INFO:     Application startup complete."
    assert triage.read_text(f"{fallback}\n{up}").verdict == judge.HEALTHY
    failed = triage.read_text("RuntimeError: unsupported compute capability 7.5")
    assert [one.key for one in failed.causes] == ["missing-sm-arch"]
