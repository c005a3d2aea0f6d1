"""The bundle: every file redacted and rendered safely, the same bytes for the same input, an archive that can be checked."""

import gzip
import html.parser
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import junitparser
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runbook import bundle, engine, report, tarball
from runbook.bundle import Gathered, Item, Log
from runbook.checks import ALL
from runbook.errors import BadParameter
from runbook.model import Cost
from runbook.probes.replay import ReplayProbe, load
from runbook.redact import Numbered

PLANTED = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
ROWS = [
    report.as_json(one)
    for one in engine.run(engine.select(ALL, [], Cost.STATIC), ALL, ReplayProbe(load("h200-driver-470")))
]
HOSTILE = (
    "INFO 11-30 05:55:58 [api_server.py:1] vLLM API server version 0.19.1\n"
    f"non-default args: {{'api_key': ['sesame-open-1'], 'model': '/home/bob/x'}} token {PLANTED}\n"
    "<script>alert(1)</script> <img src=x onerror=alert(1)> \u202egnp.exe\u200b \x1b[2J\x1b]0;evil\x07 \x08\x9b1m\n"
    "``` @torch #12 | ] ]]> &lt; ~~~~ </pre></details>\n"
    "\x1b[36m(EngineCore pid=1)\x1b[0;0m ERROR 11-30 05:56:00 [core.py:1] RuntimeError: CUDA out of memory on 10.1.2.3\n"
)
TRIAGE: dict[str, Any] = {
    "schema": "triage/1", "verdict": "cause", "reason": "",
    "causes": [{"key": "cuda-oom", "layer": "memory", "colour": "red", "confidence": "stated", "file": "bad.log", "line": 5,
                "text": f"RuntimeError: CUDA out of memory {PLANTED} <b>", "why": "It is full.", "fix": {"text": "Less.", "commands": [], "risk": "none", "undo": None}, "checks": ["HOST-001"]}],
    "telling": [],
}  # fmt: skip


def redactor() -> Numbered:
    return Numbered({"~": "/home/alice"}, "gpu-box-7", "alice")


def gathered(log: str = HOSTILE, **more: Any) -> Gathered:
    facts: dict[str, Any] = {"rows": ROWS, "source": "static checks", "run": {"begun": "2026-11-30", "machine": "live"}, "environment": "OS : Debian, /home/alice/x on gpu-box-7\n", "chosen": "first on PATH", "logs": [Log("/home/alice/bad.log", log)]}  # fmt: skip
    return Gathered(**{**facts, **more})


def made(found: Gathered | None = None) -> dict[str, Item]:
    return {item.name: item for item in bundle.made(found or gathered(), redactor(), "1.2.3")}


def test_what_is_in_it() -> None:
    items = made(gathered(triage=TRIAGE))
    assert list(items) == ["bundle.html", "environment.txt", "findings.json", "issue.md", "junit.xml", "logs/bad.log", "report.html", "triage.json", "manifest.json"]  # fmt: skip
    manifest = json.loads(items["manifest.json"].content)
    assert (manifest["schema"], manifest["runbook"], manifest["source"]) == (
        "bundle/1",
        "1.2.3",
        "static checks",
    )
    assert [row["name"] for row in manifest["files"]] == [name for name in items if name != "manifest.json"]
    for row in manifest["files"]:
        content = items[row["name"]].content
        assert (row["size"], row["sha256"]) == (len(content), tarball.sha256(content))
    log = next(row for row in manifest["files"] if row["name"] == "logs/bad.log")
    assert log["replaced"] == {"ip": 1, "secret": 2, "user": 1}
    assert log["origin"] == "~/bad.log"


def test_the_verdicts_are_those_that_were_found() -> None:
    items = made()
    rows = json.loads(items["findings.json"].content)
    assert [(row["id"], row["verdict"]) for row in rows] == [(row["id"], row["verdict"]) for row in ROWS]
    xml = junitparser.JUnitXml.fromstring(items["junit.xml"].content.decode())
    assert (xml.failures, xml.errors) == tuple(
        sum(row["verdict"] == one for row in ROWS) for one in ("fail", "unknown")
    )
    failed = [row["id"] for row in ROWS if row["verdict"] == "fail"]
    assert failed
    for name in ("bundle.html", "report.html", "issue.md"):
        assert all(one in items[name].content.decode() for one in failed)


@pytest.mark.parametrize(
    "where", ["log", "environment", "finding", "triage", "name of a log", "run", "source"]
)
def test_a_secret_reaches_no_file(where: str) -> None:
    row = {**ROWS[0], "reason": f"it said {PLANTED}", "evidence": [{"name": "x", "value": PLANTED, "origin": f"run {PLANTED}"}]}  # fmt: skip
    places: dict[str, dict[str, Any]] = {
        "log": {"logs": [Log("x.log", f"a {PLANTED} b\n")]},
        "environment": {"environment": f"HF={PLANTED}"},
        "finding": {"rows": [row]},
        "triage": {"triage": TRIAGE},
        "name of a log": {"logs": [Log(f"/x/{PLANTED}.log", "innocent\n")]},
        "run": {"run": {"begun": "", "machine": "live", "target": f"/x/{PLANTED}", "parameters": {"model": PLANTED}}},
        "source": {"source": f"the run {PLANTED}"},
    }  # fmt: skip
    items = made(gathered("innocent\n", **places[where]))
    assert any(b"secret-1" in item.content for item in items.values()) or where == "name of a log"
    for name, item in items.items():
        assert PLANTED.encode() not in item.content, name
        assert PLANTED not in name + item.origin
    assert PLANTED not in bundle.preview(list(items.values())) + json.dumps(
        bundle.as_json(list(items.values()))
    )


@pytest.mark.parametrize(
    "text", ["", "plain\n", "caf\u00e9 \udcff\udc80 no UTF-8\r\n", "\x1b[36mcoloured\x1b[0m 12.8.90.1==12.8.90.1\n", "\ufeffwith a mark\x00"]
)  # fmt: skip
def test_an_innocent_log_comes_through_byte_for_byte(text: str) -> None:
    item = made(gathered(text))["logs/bad.log"]
    assert item.content == text.encode("utf-8", "surrogateescape")
    assert item.replaced == {}
    assert item.changed == []


def test_the_preview_shows_what_leaves() -> None:
    items = list(made().values())
    told = bundle.preview(items)
    assert re.search(r"logs/bad\.log +\d+ B  1 ip, 2 secret, 1 user\n", told)
    assert "line 2: " in told
    assert "line 5: " in told
    assert "<ip-1>" in told
    assert re.search(r"replaced: 1 home, 1 host, 1 ip, 2 secret, 1 user$", told)
    assert "\x1b" not in told
    row = next(one for one in bundle.as_json(items) if one["name"] == "logs/bad.log")
    assert [one["line"] for one in row["changed"]] == [2, 5]


class Page(html.parser.HTMLParser):
    """Tags and attributes as a browser would find them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.mark.parametrize("name", ["bundle.html", "report.html"])
def test_the_pages_hold_nothing_that_runs_or_is_fetched(name: str) -> None:
    row = {**ROWS[0], "reason": HOSTILE, "evidence": [{"name": HOSTILE, "value": HOSTILE, "origin": HOSTILE}], "verdict": "fail", "fix": {"text": HOSTILE, "commands": [HOSTILE], "risk": "none", "undo": HOSTILE}}  # fmt: skip
    text = made(gathered(rows=[row], triage=TRIAGE))[name].content.decode()
    tags = Page(text).tags
    assert not {tag for tag, _ in tags} & {"script", "img", "iframe", "link", "object", "embed", "form", "b<"}
    assert not [key for _, attributes in tags for key in attributes if key.startswith("on") or key == "src"]
    policy = [one.get("content") for tag, one in tags if tag == "meta" and "http-equiv" in one]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    assert "&lt;script&gt;alert(1)" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202e]", text)
    assert "\\u202e" in text


def test_the_issue_pings_nobody_and_is_short_enough() -> None:
    text = made()["issue.md"].content.decode()
    fence = max(re.findall("`{3,}", text), key=len)
    outside = re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", text)
    assert "RuntimeError: CUDA out of memory on <ip-1>" in text
    assert "CUDA out of memory" not in outside
    assert "@" not in outside
    assert text.count(fence) % 2 == 0
    assert "### Your current environment" in outside
    long = gathered("ERROR 11-30 05:56:00 [core.py:1] RuntimeError: " + "`x" * 100_000 + "\n", environment="y" * 200_000)  # fmt: skip
    assert len(made(long)["issue.md"].content.decode()) < 65_536


def test_with_a_triage_the_issue_names_its_cause() -> None:
    text = made(gathered(triage=TRIAGE))["issue.md"].content.decode()
    assert "cuda-oom (stated by the log): It is full." in text
    assert "bad.log:5  RuntimeError: CUDA out of memory <secret-" in text


def test_two_logs_of_one_name_keep_theirs() -> None:
    logs = [Log("/a/server.log", "one\n"), Log("/b/server.log", "two\n"), Log("/c/..", "three\n"), Log("/d/s\u00e9 r.log", "four\n")]  # fmt: skip
    items = made(gathered(logs=logs))
    found = {name: item.content for name, item in items.items() if name.startswith("logs/")}
    assert found == {
        "logs/server.log": b"one\n",
        "logs/server-2.log": b"two\n",
        "logs/log": b"three\n",
        "logs/s__r.log": b"four\n",
    }


def test_rows_of_another_kind_are_refused() -> None:
    for row in ({}, {**ROWS[0], "verdict": "fine"}, {**ROWS[0], "layer": "MOON"}, {**ROWS[0], "evidence": 3}):
        with pytest.raises(BadParameter, match="a finding that cannot be read"):
            made(gathered(rows=[row]))


# Logs of any size.


def test_of_a_long_log_both_ends_are_kept_in_whole_lines() -> None:
    lines = [f"line {number}\n" for number in range(10_000)]
    log = bundle.excerpt(io.BytesIO("".join(lines).encode()), "x", head=1000, tail=2000)
    kept = log.text.splitlines(keepends=True)
    mark = next(at for at, line in enumerate(kept) if line.startswith("[runbook bundle: "))
    assert kept[:mark] == lines[:mark]
    assert kept[mark + 1 :] == lines[-(len(kept) - mark - 1) :]
    assert log.left_out == sum(map(len, lines)) - sum(map(len, kept)) + len(kept[mark])
    assert kept[mark] == f"[runbook bundle: {log.left_out} bytes are left out here]\n"
    assert 2800 < len(log.text) < 3100


@settings(max_examples=200, deadline=None, derandomize=True)
@given(before=st.integers(0, 60), between=st.sampled_from(["\n", " ", "x"]), size=st.integers(0, 200))
def test_a_token_that_the_cut_halves_does_not_leave(before: int, between: str, size: int) -> None:
    text = ("a" * before + between + PLANTED + between) + "b" * size + between + PLANTED + between + "c" * before  # fmt: skip
    log = bundle.excerpt(io.BytesIO(text.encode()), "x", head=64, tail=64)
    clean = redactor()(log.text)
    if log.left_out:
        # Between letters it is no token of its own, whole or not: what is left of the word goes with the cut.
        assert all(part not in clean for part in (PLANTED[:12], PLANTED[-12:]))


def test_a_log_of_another_system_is_read_and_a_compressed_one_refused() -> None:
    for coding, mark in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        assert (
            bundle.excerpt(io.BytesIO(mark + f"key {PLANTED}".encode(coding)), "x").text == f"key {PLANTED}"
        )
    with pytest.raises(BadParameter, match="no secret can be found"):
        bundle.excerpt(io.BytesIO(gzip.compress(HOSTILE.encode() * 50)), "x")


# The archive.


def test_the_same_files_make_the_same_bytes() -> None:
    first, second = (tarball.packed({item.name: item.content for item in made().values()}) for _ in range(2))
    assert first == second
    assert tarball.packed({"b": b"1", "a": b"2"}) == tarball.packed({"a": b"2", "b": b"1"})
    with tarfile.open(fileobj=io.BytesIO(first)) as archive:
        entries = archive.getmembers()
    assert {(one.mtime, one.uid, one.gid, one.uname, one.mode) for one in entries} == {(0, 0, 0, "", 0o644)}
    assert [one.name for one in entries] == sorted(one.name for one in entries)
    assert first[4:8] == bytes(4)  # the time in gzip's own header


def archive(*files: tuple[str, bytes], link: str = "") -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as out:
        for name, content in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            out.addfile(entry, io.BytesIO(content))
        if link:
            entry = tarfile.TarInfo(link)
            entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
            out.addfile(entry)
    return raw.getvalue()


def listing(**files: bytes) -> tuple[str, bytes]:
    rows = [{"name": name, "size": len(one), "sha256": tarball.sha256(one)} for name, one in files.items()]
    return "runbook-bundle/manifest.json", json.dumps({"files": rows}).encode()


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (archive(("runbook-bundle/a", b"1"), listing(a=b"1")), []),
        (archive(("runbook-bundle/a", b"2"), listing(a=b"1")), ["a: not the listed content"]),
        (archive(listing(a=b"1")), ["a: listed, and not there"]),
        (archive(("runbook-bundle/a", b"1"), ("runbook-bundle/b", b""), listing(a=b"1")), ["b: there, and not listed"]),
        (archive(("runbook-bundle/a", b"1"), ("runbook-bundle/a", b"2"), listing(a=b"1")), ["runbook-bundle/a: not a file of a bundle"]),
        (archive(("runbook-bundle/a", b"1"), ("../../x", b""), listing(a=b"1")), ["../../x: not a file of a bundle"]),
        (archive(("runbook-bundle/a", b"1"), ("runbook-bundle/../x", b""), listing(a=b"1")), ["runbook-bundle/../x: not a file of a bundle"]),
        (archive(("runbook-bundle/a", b"1"), listing(a=b"1"), link="runbook-bundle/l"), ["runbook-bundle/l: not a file of a bundle"]),
    ],
    ids=["whole", "changed", "gone", "added", "twice", "outside", "above", "link"],
)  # fmt: skip
def test_an_archive_is_held_against_its_manifest(content: bytes, wrong: list[str]) -> None:
    assert tarball.problems(content, "x") == (1, wrong)


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"no tar"), archive(("runbook-bundle/a", b"1")), archive(listing())[:-20],
     archive(("runbook-bundle/manifest.json", b"[]")), archive(("runbook-bundle/manifest.json", b"[" * 100_000)), gzip.compress(bytes(tarball.LIMIT + (2 << 20)))],
    ids=["empty", "text", "no tar", "no manifest", "cut", "a list", "deep", "a bomb"],
)  # fmt: skip
def test_what_is_no_bundle_is_said_to_be_none(content: bytes) -> None:
    with pytest.raises(BadParameter, match="x is no bundle"):
        tarball.problems(content, "x")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(at=st.integers(0, 10_000), bits=st.integers(1, 255))
def test_no_flipped_bit_goes_unnoticed(at: int, bits: int) -> None:
    raw = bytearray(gzip.decompress(archive(("runbook-bundle/a", bytes(range(256)) * 8), listing(a=bytes(range(256)) * 8))))  # fmt: skip
    start = raw.index(bytes(range(256)))
    raw[start + at % 2048] ^= bits
    assert tarball.problems(gzip.compress(bytes(raw)), "x") == (1, ["a: not the listed content"])


def test_more_than_anybody_reads_is_refused() -> None:
    with pytest.raises(BadParameter, match="65 MiB"):
        tarball.packed({"a": bytes(65 << 20)})


def test_the_module_reads_nothing_of_the_machine() -> None:
    """Pure: what goes in is all there is."""
    words = Path(bundle.__file__).read_text(encoding="utf-8")
    assert not re.search(r"\bos\.|\.read_text\(|subprocess|datetime|socket", words)
