"""The sandbox: what transformers' environment gives a template, and what a hostile one cannot do."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from runbook.checkpoint import files, sandbox, template
from runbook.checkpoint.tokens import Tokens

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

SAID = {"messages": [{"role": "user", "content": "Hi <b>"}], "tools": None}
TOKENS = Tokens(
    {"<|im_start|>": 1, "<|im_end|>": 2},
    {"<|im_start|>": 1, "<|im_end|>": 2},
    {"eos_token": "<|im_end|>"},
    "",
)


def rendered(source: str, **more: Any) -> tuple[str, str]:
    return sandbox.render(source, {"it": {**SAID, **more}})["it"]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{% if true %}\nx\n{% endif %}\n", "x\n"),  # blocks leave no line behind
        ("  {% if true %}x{% endif %}", "x"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "Hi <b>"}]'),  # not escaped for a page
        ("{{ {'b': 1, 'a': 'é'} | tojson(sort_keys=true, indent=1) }}", '{\n "a": "é",\n "b": 1\n}'),
        ("{% for a in range(9) %}{% if a == 2 %}{% break %}{% endif %}{{ a }}{% endfor %}", "01"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}", "Hi <b>"),
        ("{{ strftime_now('%Y') }}", "2026"),
        ("{{ missing }}{{ tools is none }}", "True"),
    ],
)
def test_what_transformers_gives_a_template(source: str, text: str) -> None:
    assert rendered(source) == ("text", text)


@pytest.mark.parametrize(
    ("source", "kind", "words"),
    [
        ("{{ raise_exception('no user') }}", "raises", "no user"),
        ("{{ 1 // 0 }}", "raises", "ZeroDivisionError"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "raises", "unsafe"),
        ("{{ messages.append(1) }}", "raises", "unsafe"),
        ("{% include '/etc/passwd' %}", "raises", "no loader"),
        ("{% for", "parse", "line 1"),
        ("{{ '(' * 20000 }}{% set x = " + "(" * 3000 + "1" + ")" * 3000 + " %}", "parse", "RecursionError"),
        ("{{ 'a' * 10**10 }}", "limit", "memory"),
        ("{{ 'a' * 10**6 }}", "limit", "letters"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "limit", "0.25 s"),
        ("{{ 9 ** 99999999 }}", "limit", "0.25 s"),
    ],
)
def test_what_a_template_cannot_do(source: str, kind: str, words: str) -> None:
    began = time.perf_counter()
    found, said = rendered(source)
    assert (found, words in said) == (kind, True), (found, said[:300])
    assert time.perf_counter() - began < 5


def test_the_conversations_before_a_limit_are_kept_and_no_child_is_left() -> None:
    loop = "{% if long is defined %}{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}{% endif %}ok"
    found = sandbox.render(loop, {"a": SAID, "b": {**SAID, "long": True}, "c": SAID})
    assert found["a"] == ("text", "ok")
    assert found["b"][0] == "limit"
    assert "c" not in found
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def facts(folder: Path, **settings: Any) -> tuple[dict[str, Any], list[str]]:
    tokens = Tokens(TOKENS.ids, TOKENS.added, TOKENS.roles, "", settings)
    found, faults = template.read(folder, files.names(folder), tokens)
    return found, [fault.kind for fault in faults]


SOUND = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking is defined and enable_thinking %}DEEP{% endif %}{% endif %}"
)


def test_a_file_goes_before_the_key_and_the_default_of_several_is_taken(tmp_path: Path) -> None:
    assert facts(tmp_path) == ({}, ["template/none"])
    found, kinds = facts(tmp_path, chat_template=SOUND)
    assert (found["from"], found["turn"], kinds) == ("tokenizer_config.json", "<|im_end|>", [])
    several = [{"name": "tool_use", "template": "{{ x"}, {"name": "default", "template": SOUND}]
    assert facts(tmp_path, chat_template=several) == (found, [])
    (tmp_path / "chat_template.jinja").write_text(SOUND + " ", encoding="utf-8")
    found, kinds = facts(tmp_path, chat_template=SOUND)
    assert (found["from"], kinds) == ("chat_template.jinja", ["template/two"])


@pytest.mark.parametrize(
    ("default", "told"), [("defined and enable_thinking", "off"), ("not defined or enable_thinking", "on")]
)
def test_what_a_chat_gets_that_does_not_ask(default: str, told: str, tmp_path: Path) -> None:
    """Qwen3.5 ships both forms: thinking is off in 0.8B and 2B, on in the others."""
    source = SOUND.replace("defined and enable_thinking", default)
    (tmp_path / "chat_template.jinja").write_text(source, encoding="utf-8")
    assert facts(tmp_path)[0]["thinking"] == told


def test_a_template_that_asks_for_a_user_is_told_of_and_no_fault(tmp_path: Path) -> None:
    check = "{% if 'user' not in messages | map(attribute='role') | list %}{{ raise_exception('No user query found in messages.') }}{% endif %}"
    (tmp_path / "chat_template.jinja").write_text(check + SOUND, encoding="utf-8")
    found, kinds = facts(tmp_path)
    assert (found["ends"]["no user"], kinds) == ("raises: No user query found in messages.", [])
