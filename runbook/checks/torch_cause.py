"""Why torch sees no GPU: the one cause, from what the driver and the runtime answered inside the target."""

from runbook import tables
from runbook.checks import libraries
from runbook.checks.cuda import NEW_DRIVER
from runbook.checks.readings import REBUILD, gpus
from runbook.model import Fix, Risk
from runbook.probe import Probe

VISIBLE = "CUDA_VISIBLE_DEVICES"
UVM = "/dev/nvidia-uvm"
Cause = tuple[str, Fix]
NO_DEVICE, STUB, TOO_OLD, NOT_READY, MISMATCH, NO_COMPAT, UNKNOWN = 100, 34, 35, 802, 803, 804, 999
LOOK = Fix("Read the layers below: driver, libcuda, runtime", ("runbook check DRIVER CUDA",))


def _part(facts: dict[str, object], name: str) -> dict[str, object]:
    value = facts.get(name)
    return value if isinstance(value, dict) else {}


def cause(host: Probe, facts: dict[str, object]) -> Cause:  # noqa: PLR0911 - one return a cause
    """The cause and its cure. ``facts`` are those of inside/torch_facts.py."""
    driver, runtime = _part(facts, "driver"), _part(facts, "runtime")
    if facts.get("cuda") is None:
        return "this torch is a CPU build", REBUILD
    if not driver:
        return "not known: this answer says nothing of the driver", LOOK
    if error := driver.get("error"):
        return _no_library(str(error))
    code = driver.get("cuinit")
    answer = runtime.get("code") if code == 0 else code
    if answer == 0:
        return (
            "driver and runtime answer well, torch itself stops",
            Fix("Read what torch.cuda.init() says; a setting of the allocator does this", ("runbook check TORCH-012",)),
        )  # fmt: skip
    if answer == NO_DEVICE:
        return _none_seen(host)
    if answer == TOO_OLD:
        served = driver.get("cuda")
        up_to = f"{served // 1000}.{served % 1000 // 10}" if isinstance(served, int) else "an older CUDA"
        return (
            f"the driver serves CUDA up to {up_to}, torch was built for {facts['cuda']}",
            Fix(
                "Install a newer driver, or wheels for the driver's CUDA (CUDA-008)", NEW_DRIVER, Risk.REBOOT
            ),
        )
    return _by_code(host, answer)


def answers(facts: dict[str, object]) -> list[tuple[str, str]]:
    """The codes behind the cause, to be shown."""
    driver, runtime = _part(facts, "driver"), _part(facts, "runtime")
    found = [("cuInit", driver.get("cuinit")), ("cudaGetDeviceCount", runtime.get("name"))]
    return [(name, str(value)) for name, value in found if value is not None]


def _no_library(error: str) -> Cause:
    if "too short" in error:
        return (
            f"libcuda.so.1 is an empty file ({error})",
            Fix("Start the container with the GPU runtime, so that the real library is mounted over it", ("docker run --gpus all ...",)),
        )  # fmt: skip
    return (
        f"the driver's library does not load ({error})",
        Fix(
            "Mount it into the container with the compute capability, or refresh the loader's cache (CUDA-007)",
            ("docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...", "sudo ldconfig"),
        ),
    )


def _none_seen(host: Probe) -> Cause:
    """No device was found: hidden, sliced without a slice, or a driver that has none."""
    value = host.env(VISIBLE)
    if value is not None:
        return f"{VISIBLE}={value!r} hides every GPU", Fix(
            "Name GPUs that exist, or clear it", (f"unset {VISIBLE}",)
        )
    if host.read_text(libraries.MODULE) is None:
        return "the kernel module is not loaded", Fix("Load it", ("sudo modprobe nvidia",), Risk.NONE)
    if any(one.mig == "Enabled" for one in gpus(host)):
        return (
            "MIG is on and no instance can be used",
            Fix(
                "Make one, or turn MIG off",
                ("sudo nvidia-smi mig -cgi 0 -C", "sudo nvidia-smi -mig 0"),
                Risk.RESTART,
            ),
        )
    return (
        "the driver answers that there is no device (100)",
        Fix("Pass the device files into the container or job, /dev/nvidiactl too", ("ls -l /dev/nvidia*", "docker run --gpus all ...")),
    )  # fmt: skip


def _by_code(host: Probe, code: object) -> Cause:
    """The causes that the code names by itself."""
    if code == UNKNOWN:
        if host.glob(UVM):
            return (
                "the nvidia_uvm module is in a bad state (999), as after a suspend",
                Fix(
                    "Load it again", ("sudo modprobe -r nvidia_uvm", "sudo modprobe nvidia_uvm"), Risk.RESTART
                ),
            )
        return f"{UVM} is missing (999)", Fix("Make the node", ("sudo nvidia-modprobe -u -c=0",))
    first = libraries.libcuda(host)[:1] if code == MISMATCH else ()
    if first and first[0].kind == "compat":
        return (
            f"a cuda-compat library comes before the driver's own: {first[0].path} (803)",
            Fix("Take its folder off the loader's path (CUDA-007)", ("unset LD_LIBRARY_PATH",), Risk.RESTART),
        )
    row = tables.cuda_error(code) if isinstance(code, int) else None
    said = (
        f"{row['name']} ({code}): {row.get('usual_cause') or row['meaning']}"
        if row
        else f"the driver answered {code}"
    )
    return said, {
        STUB: Fix("Take the stubs folder off the loader's path (CUDA-007)", ("unset LD_LIBRARY_PATH",), Risk.RESTART),
        NOT_READY: Fix("Start the fabric manager of exactly the driver's version", ("sudo systemctl start nvidia-fabricmanager",), Risk.RESTART),
        MISMATCH: Fix("Reboot, so that module and library are of one driver again (DRIVER-003)", ("sudo reboot",), Risk.REBOOT),
        NO_COMPAT: Fix("Take the cuda-compat folder off the loader's path (CUDA-007)", ("unset LD_LIBRARY_PATH",), Risk.RESTART),
    }.get(code if isinstance(code, int) else -1, LOOK)  # fmt: skip
