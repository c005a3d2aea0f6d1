"""What an engine says it runs with: the line "Initializing a V1 LLM engine (v0.19.1) with config: ..." of the server's log."""

import re
from collections.abc import Mapping

from runbook.parse import vllm_log

LONGEST = 1 << 14  # letters that are read; real lines have some 3,500
_LINE = re.compile(r"Initializing a V1 LLM engine \(v[^)]*\) with config: (?P<config>.*)")
# key=value between commas; a value may be quoted or a name such as torch.bfloat16. What lies in brackets is left out.
_PAIR = re.compile(r"(?:^|, )(?P<key>[a-z_]+)=(?:'(?P<quoted>[^']*)'|(?P<plain>[\w.+-]*))(?=,|$)")
_INNER = re.compile(r"\([^()]*\)|\{[^{}]*\}|\[[^\[\]]*\]")


def config(log: str) -> Mapping[str, str]:
    """Plain values of the last such line, by name (``max_seq_len``, ``dtype``, ...); empty where there is none."""
    found = [match["config"] for raw in log.splitlines() if (match := _LINE.search(vllm_log.plain(raw)))]
    if not found:
        return {}
    line = found[-1][:LONGEST]
    text, before = line, ""
    while text != before:
        text, before = _INNER.sub("", text), text
    pairs = {one["key"]: one["quoted"] or one["plain"] or "" for one in _PAIR.finditer(text)}
    inner = re.search(r"reasoning_parser='([^']*)'", line)
    return pairs | ({"reasoning_parser": inner[1]} if inner else {})
