"""Every check, as literal tuples one can read: nothing is registered by being imported."""

from runbook.checks import abi, arch, cuda, driver, flash, host, model, python_env, serve, start, torch, vllm, warm
from runbook.model import Check

ALL: tuple[Check, ...] = (
    *start.CHECKS,
    *host.CHECKS,
    *driver.CHECKS,
    *cuda.CHECKS,
    *python_env.CHECKS,
    *torch.CHECKS,
    *flash.CHECKS,
    *arch.CHECKS,
    *abi.CHECKS,
    *vllm.CHECKS,
    *model.CHECKS,
    *warm.CHECKS,
    *serve.CHECKS,
)

BY_ID: dict[str, Check] = {one.id: one for one in ALL}
