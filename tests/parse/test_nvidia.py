"""nvidia-smi's XML of several driver branches, the kernel log, the module's files: real lines in, facts out, never an exception."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.parse import kernel_log, nvidia, nvidia_xml, proc

SAID = (Path(__file__).parents[1] / "data" / "nvidia" / "h200-x2.xml").read_text(encoding="utf-8")
# The element names that branches 418 to 525 used, with what an old card says; written from the names, not copied.
OLD = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v10.dtd">
<nvidia_smi_log>
  <driver_version>470.256.02</driver_version>
  <cuda_version>11.4</cuda_version>
  <attached_gpus>1</attached_gpus>
  <gpu id="00000000:3B:00.0">
    <product_name>Tesla P100-PCIE-16GB</product_name>
    <persistence_mode>Disabled</persistence_mode>
    <mig_mode><current_mig>N/A</current_mig><pending_mig>N/A</pending_mig></mig_mode>
    <mig_devices>None</mig_devices>
    <pci><pci_gpu_link_info><link_widths><max_link_width>16x</max_link_width><current_link_width>8x</current_link_width></link_widths></pci_gpu_link_info></pci>
    <clocks_throttle_reasons>
      <clocks_throttle_reason_gpu_idle>Not Active</clocks_throttle_reason_gpu_idle>
      <clocks_throttle_reason_applications_clocks_setting>Not Active
      </clocks_throttle_reason_applications_clocks_setting>
      <clocks_throttle_reason_sw_thermal_slowdown>Active</clocks_throttle_reason_sw_thermal_slowdown>
    </clocks_throttle_reasons>
    <fb_memory_usage><total>16384 MiB</total><reserved>103 MiB</reserved><used>0 MiB</used></fb_memory_usage>
    <compute_mode>Default</compute_mode>
    <ecc_errors>
      <volatile><double_bit><device_memory>1</device_memory><total>2</total></double_bit></volatile>
      <aggregate><double_bit><total>7</total></double_bit></aggregate>
    </ecc_errors>
    <retired_pages>
      <multiple_single_bit_retirement><retired_count>3</retired_count></multiple_single_bit_retirement>
      <double_bit_retirement><retired_count>1</retired_count></double_bit_retirement>
      <pending_blacklist>No</pending_blacklist><pending_retirement>Yes</pending_retirement>
    </retired_pages>
    <remapped_rows>N/A</remapped_rows>
    <temperature><gpu_temp>80 C</gpu_temp><gpu_temp_slow_threshold>82 C</gpu_temp_slow_threshold></temperature>
    <power_readings><power_limit>200.00 W</power_limit><default_power_limit>250.00 W</default_power_limit><enforced_power_limit>190.00 W</enforced_power_limit></power_readings>
    <processes><process_info><pid>5</pid><type>C</type><process_name>python a.py --x "a&b<c"</process_name><used_memory>12 MiB</used_memory></process_info></processes>
  </gpu>
</nvidia_smi_log>
"""


def test_two_h200s_of_branch_580() -> None:
    report = nvidia_xml.report(SAID)
    assert report is not None
    assert (report.driver, report.cuda, report.attached) == ("580.159.04", "13.0", 2)
    first, second = report.cards
    assert first == nvidia_xml.Card(
        bus="0000:00:06.0", name="NVIDIA H200", architecture="Hopper", minor=0, persistence=True, virtualization="Pass-Through",
        mig="Disabled", mig_pending="Disabled", total_mib=143_771, used_mib=0, compute_mode="Default", ecc_volatile=0, ecc_aggregate=0,
        remapped=0, remap_pending=False, remap_failed=False, recovery="None", slowed=("gpu_idle",), temperature=36, margin=53,
        width=16, width_max=16, power_limit=700.0, power_default=700.0, fabric_state="Completed", fabric_status="Success",
    )  # fmt: skip
    assert (second.bus, second.minor) == ("0000:00:07.0", 1)


def test_an_old_card_in_old_names() -> None:
    report = nvidia_xml.report(OLD)
    assert report is not None
    (card,) = report.cards
    assert (report.driver, card.bus, card.persistence, card.mig) == (
        "470.256.02",
        "0000:3b:00.0",
        False,
        None,
    )
    assert (card.ecc_volatile, card.ecc_aggregate, card.retired, card.retirement_pending) == (2, 7, 4, True)
    assert (card.remapped, card.remap_pending, card.recovery, card.fabric_state) == (None, None, None, None)
    assert (card.slowed, card.margin, card.width, card.width_max) == (("sw_thermal_slowdown",), 2, 8, 16)
    assert (card.power_limit, card.power_default) == (190.0, 250.0)
    assert card.processes == (nvidia_xml.Process(5, "C", 'python a.py --x "a&b<c"', 12),)


@pytest.mark.parametrize(
    ("inside", "action"),
    [
        ("<gpu_recovery_action>Drain P2P</gpu_recovery_action>", "Drain P2P"),
        ("<gpu_recovery_action>None</gpu_recovery_action>", "None"),
        ("<gpu_recovery_action>N/A</gpu_recovery_action>", None),
        ("<gpu_reset_status><reset_required>No</reset_required></gpu_reset_status>", "None"),
        ("<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>", "Reset"),
        ("<gpu_reset_status><reset_required>No</reset_required><drain_and_reset_recommended>Yes</drain_and_reset_recommended></gpu_reset_status>", "Drain and Reset"),
        ("<gpu_reset_status><reset_required>Requested functionality has been deprecated</reset_required></gpu_reset_status>", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_recovery_action_of_new_and_old_branches(inside: str, action: str | None) -> None:
    report = nvidia_xml.report(f'<nvidia_smi_log><gpu id="x">{inside}</gpu></nvidia_smi_log>')
    assert report is not None
    assert report.cards[0].recovery == action


def test_a_warning_before_the_document_is_passed_over() -> None:
    assert nvidia_xml.report(
        "WARNING: infoROM is corrupted at gpu 0000:00:06.0\n" + SAID
    ) == nvidia_xml.report(SAID)


@pytest.mark.parametrize("words", nvidia_xml.SICK)
def test_an_error_in_the_place_of_a_value_is_seen(words: str) -> None:
    report = nvidia_xml.report(SAID.replace("<gpu_temp>35 C", f"<gpu_temp>{words}"))
    assert report is not None
    assert [card.sick for card in report.cards] == [None, words]


@pytest.mark.parametrize(
    "text",
    [
        "", "No devices were found\n", "<nvidia_smi_log>", "<html><body/></html>", "<?xml version='1.0'?><a/>", SAID[:5000],
        '<!DOCTYPE a [<!ENTITY b "c">]><nvidia_smi_log>&d;</nvidia_smi_log>', "<nvidia_smi_log><gpu></nvidia_smi_log>",
    ],
)  # fmt: skip
def test_no_report(text: str) -> None:
    assert nvidia_xml.report(text) is None


def test_a_document_without_a_card() -> None:
    assert nvidia_xml.report("<nvidia_smi_log/>") == nvidia_xml.Report(None, None, None, ())


@pytest.mark.parametrize(
    ("text", "seen"),
    [("00000000:00:06.0", "0000:00:06.0"), ("00000000:3B:00.0", "0000:3b:00.0"), ("0001:3B:00.0", "0001:3b:00.0"), ("x", "x")],
)  # fmt: skip
def test_addresses_as_linux_writes_them(text: str, seen: str) -> None:
    assert nvidia_xml.address(text) == seen


TEXTS = [(found.start(), found.end()) for found in re.finditer(r"(?<=>)[^<>\n]+(?=<)", SAID)]


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    place=st.sampled_from(TEXTS),
    other=st.one_of(
        st.sampled_from(("", "N/A", "-1", "9" * 400, "\N{SUPERSCRIPT TWO}", "1e999 W", "-- C", "x", "&", "<b>", "\x00\x1b", "ERR!", "16 x")), st.text(max_size=12)
    ),
)  # fmt: skip
def test_another_text_anywhere_never_raises(place: tuple[int, int], other: str) -> None:
    report = nvidia_xml.report(SAID[: place[0]] + other + SAID[place[1] :])
    assert report is None or len(report.cards) == 2


@settings(max_examples=150, deadline=None, derandomize=True)
@given(cut=st.integers(0, len(SAID)), more=st.text(max_size=20))
def test_a_document_cut_anywhere_never_raises(cut: int, more: str) -> None:
    report = nvidia_xml.report(SAID[:cut] + more)
    assert report is None or len(report.cards) == 2


LOG = """[    0.000000] Linux version 6.8.0
[    0.669332] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build
[   12.000001] usb 1-1: SerialNumber: ABC123
[  100.500000] NVRM: Xid (PCI:0000:3b:00): 31, pid=7, name=python3, Ch 00000008
[  101.500000] NVRM: Xid (PCI:0000:AF:00.0): 79, GPU has fallen off the bus.
[  101.500100] NVRM: GPU 0000:af:00.0: GPU has fallen off the bus.
[  102.000000] nvidia-nvswitch2: SXid (PCI:0000:c3:00.0): 20009, Non-fatal, Link 28 RX Short Error Rate
Nov 30 09:00:00 box kernel: NVRM: Xid (PCI:00000000:3B:00): 45, pid=7
"""


def test_events_of_a_log() -> None:
    assert kernel_log.events(LOG) == (
        kernel_log.Event(31, "0000:3b:00", 100.5),
        kernel_log.Event(79, "0000:af:00", 101.5),
        kernel_log.Event(20009, "0000:c3:00", 102.0, switch=True),
        kernel_log.Event(45, "0000:3b:00", None),
    )
    assert kernel_log.begins(LOG) == 0.0
    # A card that is lost while it runs is an Xid; the driver had taken it.
    assert kernel_log.refusals(LOG) == ()


def test_what_a_recording_keeps_of_a_log() -> None:
    kept = kernel_log.about_nvidia(LOG)
    assert "ABC123" not in kept
    assert "Linux version" not in kept
    assert kernel_log.events(kept) == kernel_log.events(LOG)
    assert kernel_log.begins(kept) == kernel_log.begins(LOG)
    assert kernel_log.about_nvidia(kept) == kept
    assert kernel_log.about_nvidia("") == ""


@pytest.mark.parametrize(
    ("lines", "causes"),
    [
        ("NVRM: The NVIDIA GPU 0000:02:00.0 (PCI ID: 10de:2c31)\nNVRM: installed in this system requires use of the NVIDIA open kernel modules.\nNVRM: GPU 0000:02:00.0: RmInitAdapter failed! (0x22:0x56:1017)\nNVRM: GPU 0000:02:00.0: rm_init_adapter failed, device minor number 0\n", [("open", "0000:02:00"), ("init", "0000:02:00")]),
        ("NVRM: The NVIDIA GPU 0000:b3:00.0\n               NVRM: (PCI ID: 10de:26b5) installed in this system has\n               NVRM: fallen off the bus and is not responding to commands.\n", [("gone", "0000:b3:00")]),
        ("NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:1b80)\nNVRM: installed in this system is not supported by open\nNVRM: nvidia.ko because it does not include the required GPU\nNVRM: System Processor (GSP).\n", [("proprietary", "0000:05:00")]),
        ("NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:1187)\nNVRM: installed in this system is\nNVRM: supported through the NVIDIA 470.xx Legacy drivers.\n", [("legacy", "0000:05:00")]),
        ("NVRM: The NVIDIA GPU 0000:05:00.0 (PCI ID: 10de:3fff)\nNVRM: installed in this system is not supported by the\nNVRM: NVIDIA 535.54.03 driver release.\n", [("unsupported", "0000:05:00")]),
        ("[ 903.6] NVRM: RmInitAdapter: Cannot initialize GSP firmware RM\n[ 903.7] NVRM: GPU 0000:98:00.0: RmInitAdapter failed! (0x62:0x65:1792)\n", [("firmware", ""), ("init", "0000:98:00")]),
        ("[ 2052.7] NVRM: gpuWaitForGfwBootComplete_TU102: failed to wait for GFW_BOOT: (progress 0x3)\n", [("firmware", "")]),
        ("NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR1 is 0M @ 0x0 (PCI:0000:01:00.0)\n", [("bar", "")]),
        ("NVRM: GPU 0000:01:00.0: GPU has fallen off the bus.\n", []),
        ("usb 1-1: RmInitAdapter failed\n", []),
    ],
)  # fmt: skip
def test_refusals(lines: str, causes: list[tuple[str, str]]) -> None:
    assert [(one.cause, one.bus) for one in kernel_log.refusals(lines)] == causes


def test_kind_of_module() -> None:
    assert (
        nvidia.is_open_module(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
        )
        is True
    )
    assert (
        nvidia.is_open_module("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.133.20  Sat Mar 29 2025\n")
        is False
    )
    assert nvidia.is_open_module("NVRM version: something else\n") is None
    assert nvidia.is_open_module(None) is None


def test_functions_on_the_bus() -> None:
    zeros = "\t".join(["0"] * 14)
    text = f"0030\t10de2335\t29\t{zeros}\tnvidia\n0031\t10de1aef\t2a\t{zeros}\tsnd_hda_intel\n3b00\t10de22a3\t0\t{zeros}\tnvidia-nvswitch\n0000\t80860d57\t0\t{zeros}\t\n0038\t10de2335\t1f\n"
    assert nvidia.pci_functions(text) == (
        nvidia.PciFunction("00:06.0", "2335", "nvidia"),
        nvidia.PciFunction("3b:00.0", "22a3", "nvidia-nvswitch"),
        nvidia.PciFunction("00:07.0", "2335", ""),
    )
    assert nvidia.pci_functions("") == ()
    assert nvidia.pci_functions(None) is None


LEGEND = "\nLegend:\n\n  X    = Self\n  SYS  = x\n"


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ("\t\x1b[4mGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\nGPU0\t X \tNV18\t0-31\t0\t\tN/A\nGPU1\tNV18\t X \t0-31\t0\t\tN/A\n" + LEGEND, (("X", "NV18"), ("NV18", "X"))),
        (" \t\x1b[4mGPU0\tGPU1\t\x1b[0m\n GPU0\tX\tOK\t\n GPU1\tCNS\tX\t\n" + LEGEND, (("X", "OK"), ("CNS", "X"))),
        ("\tGPU0\tGPU1\tNIC0\tmlx5_0\tCPU Affinity\nGPU0\t X \tPIX\tNODE\tSYS\t0-31\nGPU1\tPIX\t X \tNODE\tSYS\t0-31\nNIC0\tNODE\tNODE\t X \tPIX\n", (("X", "PIX"), ("PIX", "X"))),
        ("\tGPU0\tCPU Affinity\nGPU0\t X \t0-23\n" + LEGEND, (("X",),)),
        ("\tGPU0\tGPU1\nGPU0\t X \tPIX\n", ()),
        ("GPU0\tGPU1\n", ()),
        ("", ()),
    ],
)  # fmt: skip
def test_tables_of_topo(text: str, cells: tuple[tuple[str, ...], ...]) -> None:
    assert nvidia.matrix(text) == cells


def test_instances_in_a_listing() -> None:
    text = "GPU 0: NVIDIA H200 (UUID: GPU-x)\n  MIG 1c.3g.71gb  Device  0: (UUID: MIG-x)\n  MIG 1g.18gb     Device  1: (UUID: MIG-y)\nGPU 1: NVIDIA H200 (UUID: GPU-y)\n"
    assert nvidia.mig_names(text) == ("1c.3g.71gb", "1g.18gb")


def test_numbers_of_the_driver_and_of_a_process() -> None:
    assert nvidia.parameter("ModifyDeviceFiles: 1\nDeviceFileMode: 438\n", "DeviceFileMode") == 438
    assert nvidia.parameter('RmMsg: ""\n', "RmMsg") is None
    assert nvidia.parameter(None, "x") is None
    assert proc.identity("Uid:\t1000\t0\t0\t0\nGid:\t5\t6\t6\t6\nGroups:\t4 27 44 \n") == (
        0,
        frozenset({6, 4, 27, 44}),
    )
    assert proc.identity("Uid:\t1000\t1000\nGid:\t5\t6\nGroups:\t\n") == (1000, frozenset({6}))
    assert proc.identity("Uid:\t\n") is None
    assert proc.identity(None) is None
    assert (
        proc.memory_regions(
            "0x00000000f0000000 0x00000000f0ffffff 0x0000000000040200\n"
            + "0x0000000000000000 0x0000000000000000 0x0000000000000000\n" * 5
        )
        == 1
    )
    assert proc.memory_regions("") is None


PARSERS: dict[str, Callable[[str], Any]] = {
    "report": nvidia_xml.report,
    "events": kernel_log.events,
    "refusals": kernel_log.refusals,
    "begins": kernel_log.begins,
    "about_nvidia": kernel_log.about_nvidia,
    "is_open_module": nvidia.is_open_module,
    "pci_functions": nvidia.pci_functions,
    "matrix": nvidia.matrix,
    "mig_names": nvidia.mig_names,
    "parameter": lambda text: nvidia.parameter(text, "DeviceFileMode"),
    "identity": proc.identity,
    "memory_regions": proc.memory_regions,
}
PIECES = (
    "<nvidia_smi_log>", "</nvidia_smi_log>", "<gpu id='x'>", "</gpu>", "<mig_devices><mig_device/></mig_devices>", "<process_name>", "</process_name>", "&lt;", "&", "<!DOCTYPE x>", "<?xml",
    "[ 1.5] ", "[ .] ", "NVRM: ", "Xid (PCI:0000:00:06): ", "SXid (PCI:0000:00:06.0): 1, Fatal", "79, x\n", "9999999999", "GPU 0000:01:00.0: ", "RmInitAdapter failed", "\n", "\t", "\0", "\x1b[4m",
    "0030\t10de2335\t", "GPU0\tGPU1\n", "GPU0 ", "GPU99999 X\n", "X", "  MIG a Device 0:", "Uid:\t", "Gid:\t", "9" * 5000, "\N{SUPERSCRIPT TWO}", "DeviceFileMode: ", "0x0000000000000000 ", "\ud800",
)  # fmt: skip


@settings(max_examples=400, deadline=None, derandomize=True)
@given(text=st.one_of(st.lists(st.sampled_from(PIECES), max_size=9).map("".join), st.text(max_size=60)))
def test_no_parser_raises(text: str) -> None:
    for name, parse in PARSERS.items():
        try:
            parse(text)
        except Exception as why:
            raise AssertionError(f"{name}({text!r})") from why
