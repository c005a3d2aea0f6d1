"""What leaves the machine: equal secrets stay equal, no way around the rules, nothing of a diagnosis is lost, linear time."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook import engine, report
from runbook.bundle import OURS
from runbook.checks import ALL
from runbook.parse import vllm_log
from runbook.probes import replay
from runbook.probes.replay import ReplayProbe, load
from runbook.redact import Numbered, numbered

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Zx9abcdefghijkl\nabCD12==\n-----END RSA PRIVATE KEY-----"
LOGS = sorted((Path(__file__).parent / "data" / "logs").glob("*.log"))


def of_alice(*known: str) -> Numbered:
    return Numbered({"~": "/home/alice"}, "gpu-box-7.corp.example.com", "alice", known)


REPLACED = [
    # coloured, cut up by colours, and in the sixteen bits of another system
    ("\x1b[0mhf_AbCdEfGhIjKlMnOp\x1b[1m x", "<secret-1> x"),
    ("\x1b[31mhf_\x1b[mAbCdEfGhIjKlMnOp", "<secret-1>"),
    ("h\0f\0_\0A\0b\0C\0d\0e\0f\0G\0h\0001", "<secret-1>"),
    ("sk-abc\u200bdefghijkl", "<secret-1>"),
    # as vLLM and its users write keys
    ("non-default args: {'api_key': ['sesame-open-1']}", "non-default args: {'api_key': ['<secret-1>']}"),
    ("vllm serve x --api-key abc --port 3", "vllm serve x --api-key <secret-1> --port 3"),
    ("['--api-key', 'abc', '--port']", "['--api-key', '<secret-1>', '--port']"),
    (r'{\"api_key\": \"abcdefg\"}', r'{\"api_key\": \"<secret-1>\"}'),
    ("HF_TOKEN=x9", "HF_TOKEN=<secret-1>"),
    ('export A_SECRET="two words"', 'export A_SECRET="<secret-1>"'),
    ("AWS_SECRET_ACCESS_KEY: wJal/rXU+x", "AWS_SECRET_ACCESS_KEY: <secret-1>"),
    ("- name: HF_TOKEN\n  value: abc", "- name: HF_TOKEN\n  value: <secret-1>"),
    ("DB_PASSWORD=12345", "DB_PASSWORD=<secret-1>"),
    ("password: 'two words here'", "password: '<secret-1>'"),
    ("Authorization: Basic dXNlcjpwYXNz", "Authorization: <secret-1>"),
    ("http://bob:s@ses@me@proxy:3128/x", "http://<credentials-1>@proxy:3128/x"),
    ("https://cdn/x?X-Amz-Signature=00aa&y=1", "https://cdn/x?X-Amz-Signature=<secret-1>&y=1"),
    # keys, also where the log was cut
    (f"a\n{KEY}\nb", "a\n<private-key-1>\n\n\n\nb"),
    (KEY.partition("\n")[2] + "\nb", "<private-key-1>\n\n\nb"),
    (KEY.rpartition("\n")[0] + "\nINFO x", "<private-key-1>\n\nabCD12==\nINFO x"),
    # people and places
    ("mail bob.x@corp.example.com", "mail <email-1>"),
    ("gpu-box-7 is gpu-box-7.corp.example.com:80", "<host-1> is <host-1>:80"),
    ("ip-10-0-12-7.ec2.internal and 10.0.12.7", "<host-1> and <ip-1>"),
    ("/home/bob/x, /home/alice/y, -I/home/bob/z", "/home/<user-1>/x, ~/y, -I/home/<user-1>/z"),
    (r"C:\Users\Bob\x", r"C:\Users\<user-1>\x"),
    ("alice ran it", "<user-1> ran it"),
]  # fmt: skip

LEFT_ALONE = [
    "TOKENIZERS_PARALLELISM=false, MAX_TOKENS=5, TOKEN_LIMIT=512, KEY: value",
    "hf_overrides={} needs hf_transfer (HF_HUB_ENABLE_HF_TRANSFER=1)",
    "Bearer token is missing; the --api-key flag is not set; HF_TOKEN: not set",
    'eos_token=\'<|im_end|>\' mask_token=[MASK] "tiktoken": "deb999e21aa70741"',
    '{"token": "Hello", "logprob": -0.1}',
    "attn = q@k.transpose(-2, -1); user@1000.service; vllm@v0.19.1; 08@vllm-0.32.0-cpu.log",
    "nvidia-cudnn-cu12    9.10.2.21\nnvidia-curand-cu12==10.3.9.90\ncublas 12.8.90.1\nRFC 5280, 4.1.2.5",
    "nvidia-cudnn-cu12>=9.1.0.70,<10 has requirement ==12.8.90.1",
    "/srv/x/home/targets/y and /home/ubuntu/z",
    "c10::Error at::native 07:10:14 [core.py:133]",
    "\x1b[36m(EngineCore pid=1)\x1b[0;0m \x00 caf\u00e9 \udcff\r\n",
]


@pytest.mark.parametrize(("text", "clean"), REPLACED, ids=[repr(text)[:40] for text, _ in REPLACED])
def test_replaced(text: str, clean: str) -> None:
    redact = of_alice()
    assert redact(text) == clean
    assert redact.counts
    assert redact.again()(clean) == clean
    assert clean.count("\n") == text.count("\n")


@pytest.mark.parametrize("text", LEFT_ALONE, ids=[repr(text)[:40] for text in LEFT_ALONE])
def test_left_alone(text: str) -> None:
    redact = of_alice()
    assert redact(text) == text
    assert not redact.counts


def test_equal_secrets_are_equal_and_a_first_mention_goes_too() -> None:
    text = "using sesame12 now\nHF_TOKEN=sesame12\nOPENAI_API_KEY=other\nBearer sesame12"
    redact = of_alice()
    redact(text)
    redact = redact.again()
    assert (
        redact(text)
        == "using <secret-1> now\nHF_TOKEN=<secret-1>\nOPENAI_API_KEY=<secret-2>\nBearer <secret-1>"
    )
    assert redact.counts == {"secret": 4}


def test_the_values_of_this_machine_s_secrets_are_known_wherever_they_stand() -> None:
    redact = numbered({"MY_API_KEY": "plain-words", "MAX_TOKENS": "123456", "HOME": "/", "OPENAI_API_KEY": "unknown"}, ["of-a-file"])  # fmt: skip
    told = redact("x plain-words, 123456, verdict unknown, of-a-file")
    assert told == "x <secret-1>, 123456, verdict unknown, <secret-2>"


def test_a_library_s_version_is_no_address_where_only_its_number_stands() -> None:
    rows = [
        {"name": "cuDNN of the wheels", "value": "9.10.2.21", "origin": "glob {site}/*.dist-info"},
        {"reason": "it loads 9.10.2.21 and asks 8.8.8.8"},
        {"name": "listens", "value": "9.9.9.9", "origin": "read /proc/net/tcp"},
    ]
    redact = of_alice()
    assert redact.tree(rows) == [
        rows[0],
        {"reason": "it loads 9.10.2.21 and asks <ip-1>"},
        {**rows[2], "value": "<ip-2>"},
    ]


@pytest.mark.parametrize("name", ["fail", "ok", "unknown", "cuda", "vllm", "error", "root", "runtimeerror"])
def test_no_name_hides_a_verdict(name: str) -> None:
    """A user or a host may be called anything."""
    machine = load("cpu-2core")
    rows = [report.as_json(one) for one in engine.run(ALL, ALL, ReplayProbe(machine, machine.stacks[0]))]
    redact = Numbered({}, name, name)
    clean = redact.tree(rows, OURS)
    for row, after in zip(rows, clean, strict=True):
        assert all(row[key] == after[key] for key in ("id", "verdict", "layer", "waived", "title"))
    text = "verdict: fail, ok, unknown; CUDA error: RuntimeError in vllm, torch 2.10.0, root cause above"
    assert redact(text) == text if name != "runtimeerror" else "verdict: fail" in redact(text)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_says_the_same(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    clean = of_alice()(text)
    assert vllm_log.root_line(clean) == vllm_log.root_line(text)
    assert vllm_log.errors(clean) == vllm_log.errors(text)


@pytest.mark.parametrize("name", [name for name in replay.names() if not load(name).edited_from])
def test_in_recordings_nothing_is_left_to_replace(name: str) -> None:
    machine = load(name)
    for stack in machine.stacks:
        rows = [report.as_json(one) for one in engine.run(ALL, ALL, ReplayProbe(machine, stack))]
        redact = of_alice()
        assert redact.tree(rows, OURS) == rows


SECRETS = (
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567", "sk-proj-Ab12Cd34Ef56", "ghp_abcdefghijklmnop1234", "10.20.30.40", "02:fc:00:00:00:05",
    "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "/home/alice/x", "bob@example.org", "gpu-box-7", "known-by-its-value",
    "HF_TOKEN=1x", "API_KEY='a b c'", "--api-key zz9", "Bearer abc.def", "http://me:pw@host", "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln",
)  # fmt: skip
PLANTED = {"HF_TOKEN=1x": "1x", "API_KEY='a b c'": "a b c", "--api-key zz9": "zz9", "Bearer abc.def": "abc.def", "http://me:pw@host": "me:pw", "/home/alice/x": "alice"}  # fmt: skip
AROUND = st.lists(st.sampled_from(["", " ", "\n", "\t", "\r\n", ", ", "; ", "(", ")", "[", "]", '"', "\x1b[0m", "\x1b[1;31m", "INFO ", "error: ", "at "]), max_size=6).map("".join)  # fmt: skip


@settings(max_examples=300, deadline=None, derandomize=True)
@given(parts=st.lists(st.tuples(AROUND, st.sampled_from(SECRETS)), min_size=1, max_size=4), end=AROUND)
def test_no_planted_secret_survives(parts: list[tuple[str, str]], end: str) -> None:
    text = "".join(f"{before} {secret} " for before, secret in parts) + end
    redact = of_alice("known-by-its-value")
    clean = redact(text)
    for _, secret in parts:
        assert PLANTED.get(secret, secret) not in clean
    assert redact.again()(clean) == clean
    assert clean.count("\n") == text.count("\n")


@settings(max_examples=150, deadline=None, derandomize=True)
@given(text=st.text(max_size=200) | st.text("\x1b[m\0hf_A1=: \n@.", max_size=60))
def test_anything_is_redacted_once_and_keeps_its_lines(text: str) -> None:
    redact = of_alice()
    clean = redact(text)
    assert clean.count("\n") == text.count("\n")
    assert redact.again()(clean) == clean


UNITS = ["a", "a-", "a://", "x@", "1.", "1:", "token=", "A_KEY_", "SECRET=", "eyJaaaaaaaaa.", "serial ", "name: A_", "\x1b[", "\x1b]", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----\n", "--a-", "(a", "secret: '", "<nvidia_smi_log><process_name>", "authorization: ", "a.a@"]  # fmt: skip


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_time_is_linear_whatever_is_written(unit: str) -> None:
    """Eight times the text in far less than the 64 times of a quadratic pattern."""

    def seconds(size: int) -> float:
        text = unit * (size // len(unit))
        return min(_timed(text) for _ in range(2))

    assert seconds(64_000) < 30 * max(seconds(8_000), 0.001)


def _timed(text: str) -> float:
    began = time.process_time()
    of_alice()(text)
    return time.process_time() - began
