"""Edited copies about the driver and the state of the cards. Parents are recordings of machines with H200s."""

import re
from collections.abc import Callable

from editing import NO_PROGRAM, Edited, Said, replaced

from runbook.model import Verdict
from runbook.parse import kernel_log, nvidia, nvidia_xml
from runbook.probes import questions

ONE, TWO, STACK = "h200-vllm-0.19.1", "h200-x2-torch-2.11", "vllm-0.19.1-cu128"
ROWS, XML, LOG = questions.run(nvidia.ARGV), questions.run(nvidia_xml.ARGV), questions.run(kernel_log.DMESG)
WARN, FAIL = Verdict.WARN, Verdict.FAIL
MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.159\n"


def value(*pairs: tuple[str, str], cards: int = 9) -> Callable[[str], str]:
    """Other texts in elements of the first ``cards`` cards: ``path/of/element`` -> text; each element must be there."""

    def change(text: str) -> str:
        for path, new in pairs:
            names = path.split("/")
            opening = r".*?".join(rf"<{name}>" for name in names)
            text, count = re.subn(
                rf"(?s)({opening})[^<]*(</{names[-1]}>)", rf"\g<1>{new}\g<2>", text, count=cards
            )
            if count == 0:
                raise ValueError(f"no element {path}")
        return text

    return change


def one_card_less(text: str) -> str:
    """The report without its last card, as when that one fell off the bus."""
    return re.sub(r"(?s)\t<gpu id=(?:(?!<gpu id=).)*</gpu>\n(?=\s*</nvidia_smi_log>)", "", text).replace(
        "<attached_gpus>2", "<attached_gpus>1"
    )


INSTANCE = """			<mig_device>
				<index>{index}</index>
				<gpu_instance_id>{instance}</gpu_instance_id>
				<compute_instance_id>0</compute_instance_id>
				<device_attributes>
					<shared>
						<multiprocessor_count>60</multiprocessor_count>
						<copy_engine_count>3</copy_engine_count>
						<encoder_count>0</encoder_count>
						<decoder_count>3</decoder_count>
						<ofa_count>0</ofa_count>
						<jpg_count>3</jpg_count>
					</shared>
				</device_attributes>
				<ecc_error_count>
					<volatile_count>
						<sram_uncorrectable>0</sram_uncorrectable>
					</volatile_count>
				</ecc_error_count>
				<fb_memory_usage>
					<total>71424 MiB</total>
					<reserved>0 MiB</reserved>
					<used>44 MiB</used>
					<free>71380 MiB</free>
				</fb_memory_usage>
				<bar1_memory_usage>
					<total>59237 MiB</total>
					<used>0 MiB</used>
					<free>59237 MiB</free>
				</bar1_memory_usage>
			</mig_device>
"""
PROCESS = """			<process_info>
				<gpu_instance_id>N/A</gpu_instance_id>
				<compute_instance_id>N/A</compute_instance_id>
				<pid>4242</pid>
				<type>C</type>
				<process_name>VLLM::EngineCore</process_name>
				<used_memory>130488 MiB</used_memory>
			</process_info>
"""


def mig(*instances: int) -> Callable[[str], str]:
    """MIG mode on the first card, with one 3g.71gb instance for each id given."""

    def change(text: str) -> str:
        text = value(
            ("mig_mode/current_mig", "Enabled"),
            ("mig_mode/pending_mig", "Enabled"),
            ("remapped_rows", "N/A"),
            cards=1,
        )(
            re.sub(
                r"(?s)<remapped_rows>.*?</remapped_rows>", "<remapped_rows>N/A</remapped_rows>", text, count=1
            )
        )
        made = "".join(
            INSTANCE.format(index=index, instance=instance) for index, instance in enumerate(instances)
        )
        return (
            text
            if not made
            else re.sub(r"(?s)(<mig_devices>).*?(\t\t</mig_devices>)", rf"\g<1>\n{made}\g<2>", text, count=1)
        )

    return change


def second_card(text: str) -> str:
    """Another product with less memory on a quarter of the lanes."""
    first, mark, second = text.rpartition("\t<gpu id=")
    change = value(
        ("product_name", "NVIDIA H100 80GB HBM3"),
        ("fb_memory_usage/total", "81559 MiB"),
        ("link_widths/current_link_width", "4x"),
    )
    return first + mark + change(second)


def xid_79(text: str) -> str:
    """The driver's lines when a card stops answering, an hour after the start."""
    lost = "[ 3611.482913] NVRM: Xid (PCI:0000:00:07): 79, pid=4242, name=VLLM::EngineCor, GPU has fallen off the bus.\n"
    return text + lost + "[ 3611.482921] NVRM: GPU 0000:00:07.0: GPU has fallen off the bus.\n"


MACHINES = [
    Edited(
        "h200-library-mismatch",
        ONE,
        STACK,
        "one H200; the driver was upgraded and the machine not restarted",
        (
            "the module is 580.126.09 and the libraries are newer",
            "nvidia-smi says 'Driver/library version mismatch'",
        ),
        {
            "read /proc/driver/nvidia/version": replaced(("580.159.04", "580.126.09")),
            ROWS: Said(MISMATCH, rc=18),
            XML: Said(MISMATCH, rc=18),
            "run nvidia-smi -L": Said(MISMATCH, rc=18),
            "run nvidia-smi": Said(MISMATCH, rc=18),
        },
        {"DRIVER-002": FAIL, "DRIVER-003": FAIL, "CUDA-007": FAIL},
    ),
    Edited(
        "h200-mig",
        ONE,
        STACK,
        "one H200 cut into two MIG instances; CUDA_VISIBLE_DEVICES names the second",
        ("MIG is on with two instances of 71424 MiB", "CUDA_VISIBLE_DEVICES names an instance by its UUID"),
        {
            XML: mig(1, 2),
            ROWS: replaced((", Disabled", ", Enabled")),
            "run nvidia-smi -L": lambda text: (
                text.rstrip("\n")
                + "\n  MIG 3g.71gb     Device  0: (UUID: MIG-<uuid>)\n  MIG 3g.71gb     Device  1: (UUID: MIG-<uuid>)\n"
            ),
            "env CUDA_VISIBLE_DEVICES": "MIG-<uuid>",
        },
        {"DRIVER-004": FAIL, "DRIVER-017": WARN},
    ),
    Edited(
        "h200-mig-empty",
        ONE,
        STACK,
        "one H200 in MIG mode with no instance made",
        ("MIG is on and no instance exists",),
        {XML: mig(), ROWS: replaced((", Disabled", ", Enabled"))},
        {"DRIVER-017": FAIL},
    ),
    Edited(
        "h200-ecc-fault",
        ONE,
        STACK,
        "one H200 with uncorrectable memory errors",
        (
            "three uncorrectable errors",
            "a row waits to be replaced",
            "the kernel log has Xid 63, 94 and 154",
            "the driver asks for a reset",
        ),
        {
            ROWS: replaced((", 0, Disabled", ", 3, Disabled")),
            XML: value(
                ("volatile/dram_uncorrectable", "3"),
                ("aggregate/dram_uncorrectable", "3"),
                ("remapped_rows/remapped_row_unc", "1"),
                ("remapped_rows/remapped_row_pending", "Yes"),
                ("gpu_recovery_action", "Drain and Reset"),
            ),
            LOG: lambda text: (
                text
                + "[ 9120.118210] NVRM: Xid (PCI:0000:00:06): 94, pid=4242, name=VLLM::EngineCor, Contained: CE User Channel (0x9). RST: No, D-RST: No\n"
                + "[ 9120.118377] NVRM: Xid (PCI:0000:00:06): 95, pid='<unknown>', name=<unknown>, Uncontained: FBHUB. RST: Yes, D-RST: No\n"
                + "[ 9121.004412] NVRM: Xid (PCI:0000:00:06): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row (0x0000000014fd2f46) marked for remapping, reset gpu to activate.\n"
                + "[ 9121.004509] NVRM: Xid (PCI:0000:00:06): 154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)\n"
            ),
        },
        {"DRIVER-006": FAIL, "DRIVER-010": FAIL, "DRIVER-011": FAIL},
    ),
    Edited(
        "h200-x2-one-lost",
        TWO,
        STACK,
        "two H200s, of which one fell off the bus",
        (
            "the kernel log has Xid 79 for the second card",
            "nvidia-smi lists the first and names the second as lost",
        ),
        {
            LOG: xid_79,
            ROWS: Said(
                "0, NVIDIA H200, 9.0, 580.159.04, 143771, 0, 0, Disabled\n"
                "Unable to determine the device handle for GPU1: 0000:00:07.0: Unknown Error\n",
                rc=15,
            ),
            XML: one_card_less,
        },
        {"DRIVER-002": FAIL, "DRIVER-009": FAIL, "DRIVER-010": FAIL},
    ),
    Edited(
        "h200-x2-neglected",
        TWO,
        STACK,
        "two H200s in a machine nobody looked after: hot, capped, exclusive, on four lanes, without peer access",
        (
            "the first card is slowed by heat and one degree from its limit",
            "the second has 4 of 16 lanes",
            "persistence is off and the power limit is 350 W",
            "compute mode is Exclusive_Process",
            "topo says that the chipset refuses peer access",
            "the second card is an H100",
        ),
        {
            XML: lambda text: second_card(
                value(
                    ("persistence_mode", "Disabled"),
                    ("gpu_power_readings/current_power_limit", "350.00 W"),
                    ("gpu_power_readings/requested_power_limit", "350.00 W"),
                    ("compute_mode", "Exclusive_Process"),
                )(
                    value(
                        ("clocks_event_reasons/clocks_event_reason_hw_slowdown", "Active"),
                        ("clocks_event_reasons/clocks_event_reason_hw_thermal_slowdown", "Active"),
                        ("temperature/gpu_temp", "88 C"),
                        ("temperature/gpu_temp_tlimit", "-1 C"),
                        cards=1,
                    )(text)
                )
            ),
            ROWS: replaced(
                (
                    "1, NVIDIA H200, 9.0, 580.159.04, 143771",
                    "1, NVIDIA H100 80GB HBM3, 9.0, 580.159.04, 81559",
                )
            ),
            "run nvidia-smi topo -p2p r": replaced(("OK\t", "CNS\t")),
            "run nvidia-smi topo -m": replaced(("NV18", "PHB")),
        },
        {f"DRIVER-{number:03}": WARN for number in (12, 13, 14, 15, 16, 19, 20)},
    ),
    Edited(
        "h200-busy",
        ONE,
        STACK,
        "one H200 with a server on it",
        ("130497 MiB of the card are used, as measured with Qwen3.5-9B served at a utilization of 0.9",),
        {
            ROWS: replaced((", 0, 0, Disabled", ", 130497, 0, Disabled")),
            XML: lambda text: value(
                ("fb_memory_usage/used", "130497 MiB"), ("fb_memory_usage/free", "12659 MiB")
            )(re.sub(r"<processes>\s*</processes>", f"<processes>\n{PROCESS}\t\t</processes>", text)),
        },
        {"DRIVER-005": WARN},
    ),
    Edited(
        "h200-not-passed-in",
        ONE,
        "vllm-0.32.0-cpu",  # what a machine without a card gets
        "a container on a machine with an H200, started without --gpus",
        ("no device file is there", "nvidia-smi is not there"),
        {
            "glob /dev/nvidia[0-9]*": "",
            "glob /dev/nvidia*": "",
            "glob {work}/jobs/*.json": "",
            "glob {model}/*": "",
            "glob /dev/dxg": "",
            ROWS: NO_PROGRAM,
            XML: NO_PROGRAM,
            "run nvidia-smi": NO_PROGRAM,
            "run nvidia-smi -L": NO_PROGRAM,
        },
        {"START-003": Verdict.OK, "DRIVER-001": FAIL, "DRIVER-007": FAIL},
        target=False,
    ),
    Edited(
        "h200-fabric-not-ready",
        ONE,
        STACK,
        "one H200 whose NVLink fabric is still being set up",
        ("the fabric is In Progress",),
        {XML: value(("fabric/state", "In Progress"), ("fabric/status", "N/A"))},
        {"DRIVER-018": FAIL},
    ),
    Edited(
        "h200-no-uvm",
        ONE,
        STACK,
        "one H200 in a container that was not given /dev/nvidia-uvm",
        ("/dev/nvidia-uvm is missing", "there is no nvidia-modprobe"),
        {
            "glob /dev/nvidia*": lambda text: "\n".join(
                line for line in text.splitlines() if "uvm" not in line
            ),
            "glob /usr/bin/nvidia-modprobe": "",
        },
        {"DRIVER-007": FAIL},
    ),
    Edited(
        "h200-closed-module-blackwell",
        ONE,
        STACK,
        "a B200 with the proprietary kernel module",
        (
            "the PCI id is a B200's",
            "the module is proprietary",
            "nvidia-smi finds no device",
            "the kernel log says why",
        ),
        {
            "read /proc/bus/pci/devices": replaced(("10de2335", "10de2901")),
            "read /proc/driver/nvidia/version": lambda text: re.sub(
                r"Open Kernel Module for x86_64", "x86_64 Kernel Module", text
            ),
            ROWS: "No devices were found\n",
            XML: "No devices were found\n",
            "run nvidia-smi": "No devices were found\n",
            "run nvidia-smi -L": "No devices found.\n",
            LOG: lambda text: (
                text
                + "[    8.481576] NVRM: The NVIDIA GPU 0000:00:06.0 (PCI ID: 10de:2901)\n"
                + "               NVRM: installed in this system requires use of the NVIDIA open kernel modules.\n"
                + "[    8.481591] NVRM: GPU 0000:00:06.0: RmInitAdapter failed! (0x22:0x56:884)\n"
            ),
        },
        {"DRIVER-002": FAIL, "DRIVER-008": FAIL},
    ),
]
