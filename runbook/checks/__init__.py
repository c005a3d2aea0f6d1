"""Every check, as literal tuples one can read: nothing is registered by being imported."""

from runbook.checks import (
    abi,
    arch,
    backends,
    cuda,
    driver,
    flash,
    flash_stray,
    gpu_health,
    host,
    host_card,
    host_disk,
    host_limits,
    kernel_module,
    libcuda,
    model,
    model_config,
    model_files,
    model_fit,
    model_memory,
    model_text,
    parity,
    python_env,
    python_packages,
    python_paths,
    serve,
    start,
    toolkits,
    torch,
    torch_libraries,
    torch_memory,
    vllm,
    vllm_files,
    warm,
)
from runbook.model import Check

ALL: tuple[Check, ...] = (
    *start.CHECKS,
    *sorted(
        (*host.CHECKS, *host_limits.CHECKS, *host_disk.CHECKS, *host_card.CHECKS), key=lambda one: one.id
    ),
    *sorted((*driver.CHECKS, *kernel_module.CHECKS, *gpu_health.CHECKS), key=lambda one: one.id),
    *cuda.CHECKS,
    *toolkits.CHECKS,
    *libcuda.CHECKS,
    *python_env.CHECKS,
    *python_paths.CHECKS,
    *python_packages.CHECKS,
    *torch.CHECKS,
    *torch_libraries.CHECKS,
    *torch_memory.CHECKS,
    *flash.CHECKS,
    *flash_stray.CHECKS,
    *arch.CHECKS,
    *abi.CHECKS,
    *sorted((*vllm.CHECKS, *vllm_files.CHECKS, *backends.CHECKS), key=lambda one: one.id),
    *sorted(
        (
            *model.CHECKS,
            *model_config.CHECKS,
            *model_files.CHECKS,
            *model_fit.CHECKS,
            *model_text.CHECKS,
            model_memory.fits,
        ),
        # Weights are held against a config and an index that are sound: MODEL-011 comes after what it requires.
        key=lambda one: (one is model_files.described, one.id),
    ),
    *warm.CHECKS,
    model_memory.as_planned,
    *sorted((*serve.CHECKS, *parity.CHECKS), key=lambda one: one.id),
)

BY_ID: dict[str, Check] = {one.id: one for one in ALL}
