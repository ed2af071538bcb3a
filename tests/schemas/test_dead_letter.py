"""Dead letters: what their headers say comes back, whatever the message held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attributary.schemas.dead_letter import (
    ATTEMPT_HEADER,
    HEADER_PREFIX,
    RETRY_OF_HEADER,
    DeadLetter,
    Origin,
    attempt_of,
    retry_headers,
)

LETTER = DeadLetter("rows", 2, 1234, "wrong_type", "not a row", 1_700_000_000_000, (0, 3, 4, 5))
TEXT = st.text(st.characters(codec="utf-8"), max_size=50)


@given(
    st.builds(
        DeadLetter,
        topic=TEXT,
        partition=st.integers(0, 2**31),
        offset=st.integers(0, 2**63),
        reason=TEXT,
        message=TEXT,
        first_seen=st.integers(0, 2**50),
        rows=st.sets(st.integers(0, 100_000), max_size=40).map(lambda rows: tuple(sorted(rows))),
        count=st.integers(0, 2**31),
    )
)
def test_headers_round_trip(letter: DeadLetter) -> None:
    assert DeadLetter.from_headers(letter.headers()) == letter


def test_the_original_headers_are_kept_before_the_new_ones() -> None:
    original = [("traceparent", b"00-1"), ("model", b"m"), ("traceparent", b"00-2")]
    headers = LETTER.headers(original)
    assert headers[:3] == original
    assert DeadLetter.from_headers(headers) == LETTER


def test_a_letter_that_dies_again_names_its_last_death_once() -> None:
    again = DeadLetter("dead-letters", 0, 1, "empty", "again", 5)
    headers = again.headers(LETTER.headers([("model", b"m")]))
    names = [name for name, _ in headers]
    assert len(names) == len(set(names))
    assert ("model", b"m") in headers
    assert DeadLetter.from_headers(headers) == again


def test_many_rejected_rows_stay_a_small_header() -> None:
    rows = tuple(range(100_000))
    letter = DeadLetter("rows", 0, 0, "wrong_type", "no", 0, rows)
    headers = letter.headers()
    assert sum(len(name) + len(value) for name, value in headers) < 500
    assert dict(headers)[HEADER_PREFIX + "rows"] == b"0-99999"
    assert DeadLetter.from_headers(headers).rows == rows


def test_text_that_is_no_unicode_is_still_written() -> None:
    headers = DeadLetter("rows", 0, 0, "wrong_type", "half \ud800 pair", 0).headers()
    assert DeadLetter.from_headers(headers).message == "half ? pair"


def test_a_long_message_is_cut() -> None:
    headers = DeadLetter("rows", 0, 0, "wrong_type", "x" * 100_000, 0).headers()
    assert DeadLetter.from_headers(headers).message == "x" * 1000


@pytest.mark.parametrize(
    "missing", ["topic", "partition", "offset", "reason", "first-seen", "rows"]
)
def test_headers_of_something_else_are_not_a_letters(missing: str) -> None:
    headers = [pair for pair in LETTER.headers() if pair[0] != HEADER_PREFIX + missing]
    with pytest.raises(KeyError):
        DeadLetter.from_headers(headers)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("partition", b"two"),
        ("offset", b""),
        ("first-seen", b"\xff"),
        ("rows", b"1,x"),
        ("rows", b"0-99999999999"),
        ("rows", b"-5-"),
    ],
)
def test_garbled_headers_are_refused(name: str, value: bytes) -> None:
    headers = [pair for pair in LETTER.headers() if pair[0] != HEADER_PREFIX + name]
    with pytest.raises(ValueError):  # noqa: PT011 - every int() has words of its own
        DeadLetter.from_headers([*headers, (HEADER_PREFIX + name, value)])


def test_a_message_that_is_published_again_says_of_what_and_how_often() -> None:
    own = [("model", b"m"), ("attributary-forged", b"x")]
    first = retry_headers(LETTER, LETTER.headers(own))
    assert first == [("model", b"m"), (RETRY_OF_HEADER, b"rows/2/1234"), (ATTEMPT_HEADER, b"1")]
    # It is rejected again: its letter keeps both, and the next retry counts on.
    second = DeadLetter("rows", 0, 99, "empty", "again", 5)
    headers = second.headers(first)
    assert attempt_of(headers) == 1
    assert DeadLetter.from_headers(headers) == second
    again = retry_headers(second, headers)
    assert again == [("model", b"m"), (RETRY_OF_HEADER, b"rows/0/99"), (ATTEMPT_HEADER, b"2")]


@pytest.mark.parametrize("value", [b"", b"-1", b"x", b"9" * 5000, "²".encode()])
def test_an_attempt_that_is_no_number_counts_as_none(value: bytes) -> None:
    assert attempt_of([(ATTEMPT_HEADER, value)]) == 0


def test_letters_from_before_the_count_was_written_are_read() -> None:
    headers = [(name, value) for name, value in LETTER.headers() if name != "attributary-count"]
    assert DeadLetter.from_headers(headers) == LETTER


@given(st.integers(0, 2**31), st.integers(0, 2**63), st.sampled_from(["rows", "a.b-c_d", "1/2"]))
def test_origins_round_trip(partition: int, offset: int, topic: str) -> None:
    origin = Origin(topic, partition, offset)
    assert Origin.parse(str(origin)) == origin


@pytest.mark.parametrize(
    "text", ["", "rows", "rows/1", "/1/2", "rows/-1/2", "rows/1/x", "rows/1/2/"]
)
def test_what_is_no_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected topic/partition/offset"):
        Origin.parse(text)
