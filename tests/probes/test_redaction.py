"""What identifies a machine or a person is replaced, as whole tokens; what a check reads is left as it is."""

import dataclasses
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook.parse import kernel_log, metrics, nvidia, nvidia_xml, python_env, vllm_log
from runbook.probe import Ran
from runbook.probes import replay
from runbook.probes.live import LiveProbe
from runbook.probes.record import RecordProbe
from runbook.redact import Redactor
from runbook.workspace import workspace

PLACES = {
    "{work}": "/home/alice/runbook",
    "{home}": "/home/alice",
    "{own}": "/opt/venv/bin",
    "{site}": "/home/alice/runbook/targets/s/lib/python3.11/site-packages",
    "{disk}": "/",
}
redact = Redactor(PLACES, host="gpu-box-7", user="alice")
UUID = "8932f937-d72c-4106-c12f-20bd9faed9f6"

REPLACED = [
    # names, as whole tokens
    ("Linux gpu-box-7 6.8.0 x86_64", "Linux <host> 6.8.0 x86_64"),
    ("alice@gpu-box-7:~$", "<user>@<host>:~$"),
    ("owner=alice,", "owner=<user>,"),
    # folders of this machine, the longest first
    ("/home/alice/runbook/targets/s/lib/python3.11/site-packages/torch", "{site}/torch"),
    ("/home/alice/runbook/jobs/server.log", "{work}/jobs/server.log"),
    ("/home/alice/.cache", "{home}/.cache"),
    ('File "/opt/venv/bin/python"', 'File "{own}/python"'),
    # hardware
    (f"GPU 0: NVIDIA H200 (UUID: GPU-{UUID})", "GPU 0: NVIDIA H200 (UUID: GPU-<uuid>)"),
    (f"MIG-{UUID.upper()}", "MIG-<uuid>"),
    (f"/dev/disk/by-uuid/{UUID}", "/dev/disk/by-uuid/<uuid>"),
    ("    Serial Number                     : 1654922006536", "    Serial Number                     : <serial>"),
    ("serial: 1654922006536", "serial: <serial>"),
    ("Board serial_number=PH4X-2", "Board serial_number=<serial>"),
    ("Linux version 6.1.0 (me@here) (gcc 12)", "Linux version 6.1.0 (<builder>) (gcc 12)"),
    ("link/ether 02:FC:00:00:00:05 brd ff:ff:ff:ff:ff:ff", "link/ether <mac> brd <mac>"),
    # addresses
    ("distributed_init_method=tcp://10.0.12.7:55005", "distributed_init_method=tcp://<ip>:55005"),
    ("inet 203.0.113.9/24", "inet <ip>/24"),
    ("connect to 198.51.100.20.", "connect to <ip>."),
    ("mq_connect_ip=192.168.1.20 (local)", "mq_connect_ip=<ip> (local)"),
    # secrets
    ("index-url = https://alice:s3cr3t@pypi.example.com/simple", "index-url = https://<credentials>@pypi.example.com/simple"),
    ("HF_TOKEN=hf_AbCdEfGhIjKlMnOp", "HF_TOKEN=<token>"),
    ('{"HF_TOKEN": "not-shaped-like-one"}', '{"HF_TOKEN": "<token>"}'),
    ("export VLLM_API_KEY='0123456789abcdef'", "export VLLM_API_KEY='<token>'"),
    ("Authorization: Bearer abc.def.ghi", "Authorization: <token>"),
    ("api_key: sk-proj-abcdefghijkl", "api_key: <token>"),
    ("ghp_abcdefghijklmnop1234", "<token>"),
    ("AKIAIOSFODNN7EXAMPLE", "<token>"),
    ("password = hunter2hunter2", "password = <token>"),
]  # fmt: skip

LEFT_ALONE = [
    # words that hold a name
    "malice alicea alices-car gpu-box-77 my-gpu-box-7-b",
    # versions that look like addresses
    "nvidia-cudnn-cu12==9.19.0.56",
    "{site}/nvidia_cudnn_cu13-9.19.0.56.dist-info",
    "cuDNN 9.19.0.56 loaded",
    "NCCL version 2.27.5.1",
    "libcudnn.so.9.19.0.56",
    "v1.2.3.4",
    "python 3.11.7, driver 580.159.04, cuda 13.0.88",
    "http://127.0.0.1:8000/v1 on 0.0.0.0",
    "255.255.255.256 is none, 1.2.3.4.5 is none",
    # not secrets
    'vllm:iteration{max_num_batched_tokens="2048"} 1.0',
    "max_num_batched_tokens=8192, prompt_tokens: 23",
    '"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"',
    "tokenizer=Qwen3_5Tokenizer",
    "HF_TOKEN is not set",
    "secret_santa",
    # hardware without a number
    "Serial Number : N/A",
    "Serial Number : [N/A]",
    # log places and times
    "(EngineCore pid=19038) INFO 11-30 05:55:58 [core.py:133] Initializing a V1 LLM engine (v0.32.0)",
    "GPU KV cache size: 861,968 tokens",
    "sha256:19c8ae185dbdca23c24abdcd8ac2cf58b8e84dc284c6f6db536656601f9ffc3f",
    "0, NVIDIA H200, 9.0, 580.159.04, 143771, 0, 0, Disabled",
]


@pytest.mark.parametrize(("text", "clean"), REPLACED, ids=[text[:40] for text, _ in REPLACED])
def test_replaced(text: str, clean: str) -> None:
    assert redact(text) == clean
    assert redact(redact(text)) == clean


@pytest.mark.parametrize("text", LEFT_ALONE, ids=[text[:40] for text in LEFT_ALONE])
def test_left_alone(text: str) -> None:
    assert redact(text) == text


def test_root_is_never_eaten() -> None:
    """A tool that replaced the user's name wherever it stood wrote 'unable to determine the <user> cause'."""
    as_root = Redactor({"{home}": "/root"}, host="vm", user="root")
    assert as_root("read /proc/sys/vm/overcommit_memory") == "read /proc/sys/vm/overcommit_memory"
    text = "See root cause above. chroot, root:x:0:0, vmlinuz, kvm, /rooted/x"
    assert as_root(text) == text
    assert as_root("/root/.cache and vm") == "{home}/.cache and vm"


def test_names_of_one_letter_or_none_replace_nothing() -> None:
    assert Redactor({"{home}": "/"}, host="a", user="")("a b / c") == "a b / c"


def test_a_name_with_odd_letters_is_no_pattern() -> None:
    assert Redactor({}, host="x.y+z", user="a[b")("x.y+z xay+z a[b ab") == "<host> xay+z <user> ab"


COUNTED = """# HELP vllm:prompt_tokens_total Number of prefill tokens processed.
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="served"} 341.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="/home/alice/runbook/models/x"} 596.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",max_num_batched_tokens="2048",api_key="abcdefgh"} 1.0
"""


def test_a_metrics_page_counts_as_before() -> None:
    clean = redact(COUNTED)
    assert metrics.totals(clean) == metrics.totals(COUNTED) != {}
    assert 'max_num_batched_tokens="2048"' in clean
    assert 'model_name="{work}/models/x"' in clean
    assert "abcdefgh" not in clean


@pytest.mark.parametrize("name", [name for name in replay.names() if not replay.load(name).edited_from])
def test_recorded_answers_stay_as_they_are_when_redacted_again(name: str) -> None:
    """Nothing the rules would replace is left in what we ship, on whatever machine it was recorded."""
    plain = Redactor({})
    for path in sorted((replay.MACHINES / name / "answers").iterdir()):
        text = path.read_text(encoding="utf-8")
        assert plain(text) == text, path.name
    for row in json.loads((replay.MACHINES / name / "index.json").read_text(encoding="utf-8")):
        assert plain(row.get("err", "")) == row.get("err", "")


SMI_XML = """<?xml version="1.0" ?>
<nvidia_smi_log>
	<gpu id="00000000:00:06.0">
		<serial>1653924043382</serial>
		<uuid>GPU-2ee8104c-f3c7-f4a0-0494-911bac364d7b</uuid>
		<pdi>0x9750c7d78ea689e2</pdi>
		<vbios_version>96.00.A5.00.1A</vbios_version>
		<board_id>0x6</board_id>
		<gpu_part_number>2335-895-A1</gpu_part_number>
		<platformInfo>
			<chassis_serial_number>1821325191344</chassis_serial_number>
			<slot_number>N/A</slot_number>
			<gpu_fabric_guid>0x5c3f8a0d11e2b4a7</gpu_fabric_guid>
		</platformInfo>
		<fabric><state>Completed</state><clusterUuid>8932f937-d72c-4106-c12f-20bd9faed9f6</clusterUuid></fabric>
		<processes>
			<process_info><pid>7</pid><process_name>/home/alice/venv/bin/python3.11 serve.py --key=&lt;secret&gt; --host 10.0.12.7</process_name></process_info>
			<process_info><pid>8</pid><process_name>VLLM::EngineCore</process_name></process_info>
			<process_info><pid>9</pid><process_name>/home/alice/secret-project/run<a></process_name></process_info>
			<process_info><pid>10</pid><process_name></process_name></process_info>
		</processes>
	</gpu>
</nvidia_smi_log>
"""


def test_what_nvidia_smi_says_in_xml_stays_xml_and_names_no_card_and_nobody() -> None:
    clean = redact(SMI_XML)
    for word in (
        "1653924043382",
        "2ee8104c",
        "9750c7d7",
        "1821325191344",
        "5c3f8a0d",
        "8932f937",
        "alice",
        "secret",
        "10.0.12.7",
    ):
        assert word not in clean
    for word in (
        "96.00.A5.00.1A",
        "2335-895-A1",
        "<slot_number>N/A</slot_number>",
        'id="00000000:00:06.0"',
        "<state>Completed</state>",
    ):
        assert word in clean
    assert redact(clean) == clean
    report, before = nvidia_xml.report(clean), nvidia_xml.report(SMI_XML)
    assert report is not None
    assert before is not None
    assert [one.name for one in report.cards[0].processes] == [
        "python3.11",
        "VLLM::EngineCore",
        "[redacted]",
        "",
    ]
    without = [dataclasses.replace(one.cards[0], processes=()) for one in (report, before)]
    assert without[0] == without[1]


def test_of_a_kernel_log_only_the_driver_s_lines_are_written_down(tmp_path: Path) -> None:
    class Machine(LiveProbe):
        def run(self, argv: list[str], timeout_s: float = 20.0) -> Ran:  # noqa: ARG002
            said = "[    0.000000] Linux version 6.8.0\n[    1.000000] usb 1-1: Product: Alice's phone\n[    2.000000] NVRM: loading\n"
            return Ran(tuple(argv), 0, said, "")

    recorder = RecordProbe(Machine(workspace()), tmp_path)
    for argv in (kernel_log.DMESG, kernel_log.JOURNAL):
        ran = recorder.run(argv)
        assert "phone" not in ran.out
        assert "NVRM: loading" in ran.out
    written = "".join(path.read_text(encoding="utf-8") for path in (tmp_path / "answers").iterdir())
    assert "phone" not in written
    assert written.count("NVRM: loading") == 2


LOGS = Path(__file__).parents[1] / "data" / "logs"


@pytest.mark.parametrize("path", sorted(LOGS.glob("*.log")), ids=lambda path: path.stem)
def test_a_log_says_the_same_when_redacted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    clean = redact(text)
    assert vllm_log.root_line(clean) == vllm_log.root_line(text)
    assert vllm_log.kv_cache(clean) == vllm_log.kv_cache(text)
    assert len(vllm_log.errors(clean)) == len(vllm_log.errors(text))


SECRETS = (
    "hf_AbCdEfGhIjKlMnOp",
    "sk-abcdefghijklmnop",
    "10.20.30.40",
    f"GPU-{UUID}",
    "02:fc:00:00:00:05",
    "/home/alice/x",
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    before=st.text(st.sampled_from("ab \n\t,;:=()[]{}\"'/"), max_size=12),
    after=st.text(st.sampled_from(" \n\t,;()[]{}\"'"), min_size=1, max_size=12),
    secret=st.sampled_from(SECRETS),
)
def test_a_secret_is_found_whatever_stands_around_it(before: str, after: str, secret: str) -> None:
    before = f"{before} "
    assert secret not in redact(f"{before}{secret}{after}")


@settings(max_examples=150, deadline=None, derandomize=True)
@given(text=st.text(max_size=200))
def test_redaction_is_done_once(text: str) -> None:
    clean = redact(text)
    assert redact(clean) == clean


def test_what_checks_read_survives(capsys: pytest.CaptureFixture[str]) -> None:
    row = "0, NVIDIA H200, 9.0, 580.159.04, 143771, 0, 0, Disabled"
    assert nvidia.gpus(redact(row)) == nvidia.gpus(row)
    paths = (
        f"{PLACES['{site}']}/nvidia_cudnn_cu12-9.10.2.21.dist-info",
        f"{PLACES['{site}']}/torch-2.10.0.dist-info",
    )
    assert python_env.distributions(map(redact, paths)) == {
        "nvidia-cudnn-cu12": "9.10.2.21",
        "torch": "2.10.0",
    }
    assert capsys.readouterr().out == ""
