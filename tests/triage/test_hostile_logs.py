"""Logs are untrusted text: whatever stands in one, reading it ends soon, and what is shown can do nothing."""

import io
import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook import triage, triaged
from runbook.errors import BadParameter
from runbook.triage import judge, text

CAUSE = b"ValueError: No available memory for the cache blocks.\n"
HOSTILE: dict[str, bytes] = {
    "nothing": b"",
    "one line end": b"\n",
    "NUL bytes": b"\x00" * 100_000,
    "NUL in the middle": b"Value\x00Error: \x00" + CAUSE,
    "all bytes": bytes(range(256)) * 400,
    "invalid UTF-8": b"\xfd\xfe\xff ERROR \xc3\x28" + CAUSE,
    "half a byte order mark": b"\xff",
    "UTF-16 of odd length": "ValueError: x\n".encode("utf-16") + b"\x00",
    "a million brackets": b"(" * 1_000_000 + b"\n" + CAUSE,
    "many a's then none": b"a" * 300_000 + b"!\n",  # what makes (a+)+ explode
    "nested quotes": b"\\\"'" * 200_000 + b"\n",
    "one line of a megabyte with a find": b"x" * 500_000 + b" No available memory for the cache blocks " + b"y" * 500_000,
    "ten thousand tracebacks": b'Traceback (most recent call last):\n  File "x"\nOddError: no\n' * 10_000,
    "terminal title and clear": b"\x1b]0;owned\x07\x1b[2J\x1b[1;1H\x1bcERROR " + CAUSE,
    "escapes without an end": b"\x1b]8;;" + b"x" * 100_000 + b"\n" + CAUSE,
    "bidi override": "ERROR \u202etxet desrever\u202c ValueError: x\n".encode() + CAUSE,
    "script": b"ERROR <script>alert(1)</script> ValueError: <img src=x onerror=alert(1)>\n",
    "template and format": b"ERROR {{7*7}} %s %n {0.__class__} $(reboot) `reboot` ValueError: x\n",
    "carriage returns only": b"ERROR ValueError: x\r" * 50_000,
    "JSON that is deep": b"[" * 200_000 + b"\n",
    "a list of every exception": b"".join(b"%sError: x\n" % name for name in (b"Value", b"Type", b"OS", b"Key")) * 2000,
    "gzip's first bytes": b"\x1f\x8b",
    "zero-width letters": "V\u200balue\u200bError: x\nERROR x\n".encode(),
}  # fmt: skip


def read(log: bytes) -> judge.Triage:
    return triage.read([("", io.BytesIO(log))])


def harmless(shown: str) -> bool:
    """No character that moves a cursor, rings, reorders or hides; line ends and tabs aside."""
    return all(
        unicodedata.category(one) not in ("Cc", "Cf", "Cs", "Zl", "Zp") or one in "\n\t" for one in shown
    )


@pytest.mark.parametrize("log", HOSTILE.values(), ids=HOSTILE)
def test_it_is_read_and_what_is_shown_is_harmless(log: bytes) -> None:
    if log.startswith(b"\x1f\x8b"):
        with pytest.raises(BadParameter, match="gzip"):
            read(log)
        return
    found = read(log)
    shown = triaged.as_text(found)
    assert harmless(shown)
    assert max(map(len, shown.splitlines())) < text.WIDTH + 100
    assert json.loads(json.dumps(triaged.as_json(found)))["verdict"] in (
        judge.CAUSE,
        judge.NONE,
        judge.HEALTHY,
    )
    assert harmless(json.dumps(triaged.as_json(found), ensure_ascii=False))
    if log.endswith(CAUSE):
        assert found.causes[0].key == "no-memory-for-kv-blocks"


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=80),
            st.text(max_size=80).map(lambda words: words.encode("utf-8", "surrogatepass")),
            st.sampled_from(
                [b"\n", b"\x1b[", b"\r", b"ERROR ", b"Error: ", CAUSE, b"\xff\xfe", b"version 0.19.1"]
            ),
        ),
        max_size=40,
    )
)
def test_any_bytes_are_read(parts: list[bytes]) -> None:
    log = b"".join(parts)
    try:
        found = read(log)
    except BadParameter:
        assert log.startswith(b"\x1f\x8b")
        return
    assert harmless(triaged.as_text(found))
    assert found.lines == (log.count(b"\n") + (not log.endswith(b"\n")) if log else 0) or log[:2] in (
        b"\xff\xfe",
        b"\xfe\xff",
    )


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=200))
def test_plain_text_has_nothing_left_to_obey(words: str) -> None:
    assert harmless(text.plain(words))
    ordinary = "".join(one for one in words if one.isprintable() and one != "\\")
    assert text.plain(ordinary) == "".join(
        one if unicodedata.category(one) not in text.HIDING else text.plain(one) for one in ordinary
    )
