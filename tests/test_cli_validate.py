"""``runbook validate`` and ``runbook soak`` from outside: bad input ends with 2 before anything starts or is written.

tests/walk/test_validate.py has a real server, tests/actions/test_soaking.py the soak.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runbook import cli_validate
from runbook.errors import BadParameter


def runbook(home: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "RUNBOOK_HOME": str(home), "COLUMNS": "80"}
    argv = [sys.executable, "-m", "runbook", *words]
    return subprocess.run(
        argv, env=env, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("validate --slo tpot", "--slo tpot"),
        ("validate --steps 4,2", "rising numbers"),
        ("validate --steps 1 --rates 1", "one of the two"),
        ("validate --quick --steps 1", "one short load"),
        ("validate --quick --generator aiperf", "one short load"),
        ("validate --output-len 1", "2 or more"),
        ("validate --stack none", "no stack 'none'"),
        ("validate --quick", "no target environment for "),
        ("validate --model qwen", "without --url"),
        ("validate --url http://127.0.0.1:1", "tokenizer"),
        ("soak --hours 1 --minutes 2", "one of the two"),
        ("soak --hours 1000", "at most 336"),
        ("soak --restart always", "--restart"),
        ("soak --resume", "there is no soak to resume"),
        ("soak --resume --minutes 2", "no other length"),
        ("soak --minutes 2", "no target environment for "),
    ],
)
def test_bad_input_is_refused(tmp_path: Path, words: str, says: str) -> None:
    ended = runbook(tmp_path / "home", *words.split())
    assert (ended.returncode, ended.stdout) == (2, ""), ended
    assert says in ended.stderr
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize("text", ["0", "0,2", "4,2", "2,2", "1,,2", ",", "1,x", "-1", "1e3", "5000", "nan"])
def test_words_that_are_no_levels(text: str) -> None:
    for whole in (True, False):
        with pytest.raises(BadParameter, match="rising numbers"):
            cli_validate._levels(text, whole=whole)


def test_levels_rise() -> None:
    assert cli_validate._levels("1, 2,8", whole=True) == (1.0, 2.0, 8.0)
    assert cli_validate._levels("0.5,1.25") == (0.5, 1.25)
    assert cli_validate._levels("") == ()
    with pytest.raises(BadParameter):
        cli_validate._levels("1.5", whole=True)


@pytest.mark.parametrize("command", ["validate", "soak"])
def test_help_says_what_it_does(tmp_path: Path, command: str) -> None:
    ended = runbook(tmp_path / "home", command, "--help")
    assert ended.returncode == 0
    assert "this workspace's running server, or one that it starts and" in " ".join(ended.stdout.split())
