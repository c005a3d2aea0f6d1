"""One pass over a log: every line is found where it stands, whatever the bytes and the blocks."""

import gzip
import io
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runbook.errors import BadParameter
from runbook.triage import scan

ERROR = r"ValueError: bad \w+"
OTHER = r"warm-up of kernels"


def read(log: bytes, *patterns: str) -> scan.Seen:
    return scan.compiled(patterns or (ERROR, OTHER)).read([("", io.BytesIO(log))])


class Small(io.BytesIO):
    """A stream that gives seven bytes at a time, as a pipe may."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(7, size) if size and size > 0 else size)

    def read1(self, size: int | None = -1) -> bytes:
        return self.read(size)


def test_a_line_is_noted_with_its_number() -> None:
    seen = read(b"one\nValueError: bad news\nthree\nx ValueError: bad luck\n")
    assert [(one.number, one.line) for one in seen.of(ERROR)] == [
        (2, "ValueError: bad news"),
        (4, "x ValueError: bad luck"),
    ]
    assert seen.of(OTHER) == []
    assert seen.lines == 4


@pytest.mark.parametrize(("log", "lines"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\nb", 2), (b"\n\n", 2)])
def test_lines_are_counted_as_an_editor_does(log: bytes, lines: int) -> None:
    assert read(log).lines == lines


def test_what_was_found_does_not_turn_on_the_blocks() -> None:
    log = b"".join(b"line %d\n" % n for n in range(5000)) + b"ValueError: bad end"
    whole = read(log)
    in_parts = scan.compiled((ERROR, OTHER)).read([("", Small(log))])
    assert whole.of(ERROR) == in_parts.of(ERROR)
    assert whole.of(ERROR)[0].number == 5001


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=60).map(lambda raw: raw.replace(b"\n", b"").replace(b"\x1b", b"")),
            st.just(b"ValueError: bad day"),
        ),
        max_size=60,
    )
)
def test_numbers_are_those_of_a_plain_reading(lines: list[bytes]) -> None:
    seen = read(b"no gzip, no byte order mark\n" + b"\n".join(lines))
    plain = [number for number, line in enumerate(lines, 2) if b"ValueError: bad day" in line]
    assert [one.number for one in seen.of(ERROR) if one.line.endswith("bad day")] == plain


def test_colour_in_the_middle_of_a_word_hides_nothing() -> None:
    log = b"\x1b[31mValue\x1b[0mError: \x1b[1;4mbad\x1b[0m\x1b]8;;http://x\x07 idea\n"
    assert read(log).of(ERROR)[0].line == "ValueError: bad idea"


def test_colour_as_a_container_log_writes_it() -> None:
    log = rb'{"log":"\u001b[31mValueError\u001b[0m: bad idea\n","stream":"stderr"}'
    assert [one.line for one in read(log).of(ERROR)] == ["ValueError: bad idea"]


def test_json_around_a_line_hides_nothing() -> None:
    log = (
        rb'{"log":"{\"error\": \"bad\"}\n","stream":"stdout","time":"2026-11-30T05:00:00Z"}'
        b'\n{"log":"cut'
    )
    seen = read(log, r'\{"error": "bad"\}$', "cut$")
    assert [(one.number, one.line) for one in seen.of(r'\{"error": "bad"\}$')] == [(1, '{"error": "bad"}')]
    assert [one.number for one in seen.of("cut$")] == [2]


def test_a_progress_bar_shows_only_the_turn_with_the_find() -> None:
    log = b"Loading: 10%\rLoading: 20%\rValueError: bad shard\rLoading: 30%\n"
    assert read(log).of(ERROR)[0].line == "ValueError: bad shard"


def test_gzip_is_unpacked_and_utf_16_is_read() -> None:
    log = "first\nValueError: bad naïve\n"
    assert read(gzip.compress(log.encode())).of(ERROR)[0].number == 2
    for encoding in ("utf-16", "utf-16-be"):
        mark = b"" if encoding == "utf-16" else b"\xfe\xff"
        assert read(mark + log.encode(encoding)).of(ERROR)[0].number == 2
    assert read(b"\xef\xbb\xbf" + log.encode()).of(ERROR)[0].number == 2


def test_a_broken_gzip_is_told() -> None:
    whole = gzip.compress(b"ValueError: bad\n" * 1000)
    for broken in (whole[:40], whole[:20] + b"????" + whole[24:], whole[:2] + b"?" + whole[3:]):
        with pytest.raises(BadParameter, match="gzip"):
            read(broken)


def test_the_ends_of_a_line_are_those_of_every_line() -> None:
    seen = read(b"x\nKilled\nwas Killed\nKilled by\nKilled", r"^Killed$")
    assert [one.number for one in seen.of(r"^Killed$")] == [2, 5]


def test_of_a_flood_the_first_places_and_the_last_are_kept() -> None:
    lines = 100_000
    seen = read(b"ValueError: bad bad\n" * lines)
    numbers = [one.number for one in seen.of(ERROR)]
    assert numbers[: scan.MOST] == list(range(1, scan.MOST + 1))
    assert numbers == sorted(set(numbers))
    assert numbers[-500:] == list(range(lines - 499, lines + 1))
    assert len(numbers) < scan.MOST + 2 * scan.LAST * scan.PIECE / len(b"ValueError: bad bad\n")


def test_what_comes_last_is_not_lost_behind_what_came_often() -> None:
    often, last = b"ValueError: bad request\n" * 3000, b"ValueError: bad end\n"
    assert read(often + b"\n" * 50_000 + last).of(ERROR)[-1].line == "ValueError: bad end"
    two = scan.compiled((ERROR, OTHER)).read([("a", io.BytesIO(often)), ("b", io.BytesIO(last))])
    assert (two.of(ERROR)[-1].source, two.of(ERROR)[-1].number) == ("b", 1)


def test_a_line_below_error_is_quiet_and_a_quoted_code_line_ends_no_traceback() -> None:
    log = (
        b"(EngineCore pid=1) WARNING 11-30 05:00:00 [core.py:12] ValueError: bad omen\n"
        b'(EngineCore pid=1) ERROR 11-30 05:00:00 [core.py:12]     raise "ValueError: bad code"\n'
        b"(EngineCore pid=1) ERROR 11-30 05:00:00 [core.py:12] ValueError: bad end\n"
        b"ValueError: bad bare\n"
        b"(APIServer pid=7)     raise ValueError: bad code\n"
        b"(APIServer pid=7) ValueError: bad tagged\n"
    )
    assert [(one.quiet, one.exception) for one in read(log).of(ERROR)] == [
        (True, True),
        (False, False),
        (False, True),
        (False, True),
        (False, False),
        (False, True),
    ]


class Endless(io.RawIOBase):
    """So many bytes without a line's end, made as they are read."""

    def __init__(self, size: int) -> None:
        self.left = size

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        taken = min(self.left, size)
        self.left -= taken
        return b"x" * taken


def test_a_file_without_line_ends_takes_no_memory() -> None:
    tracemalloc.start()
    seen = scan.compiled((ERROR, OTHER)).read([("", Endless(200_000_000))])  # type: ignore[list-item]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seen.size == 200_000_000
    assert peak < 16_000_000  # a block, a rest and a line's limit; the file has 200 MB


def test_blocks_are_whole_lines() -> None:
    def parts() -> Iterator[bytes]:
        yield from scan.blocks(Small(b"ab\ncdefghij\nkl"))

    assert b"".join(parts()) == b"ab\ncdefghij\nkl"
    assert all(one.endswith(b"\n") for one in list(parts())[:-1])
