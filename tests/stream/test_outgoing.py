"""Records of the workers: what a broker cannot take in one record must not make a flush fail for ever."""

from __future__ import annotations

import pytest
from streams import NOW, record

from attributary.schemas.dead_letter import DeadLetter, Headers
from attributary.schemas.topics import Topics
from attributary.workers.stream.block import Rejection
from attributary.workers.stream.outgoing import (
    MAX_RECORD_BYTES,
    TRUNCATED_HEADER,
    Outgoing,
    dead_letter_record,
)


def _letter(value: bytes | None, key: bytes | None = None, headers: Headers = ()) -> Outgoing:
    letter = DeadLetter(
        topic="rows", partition=0, offset=7, reason="empty", message="why", first_seen=NOW
    )
    taken = record(value, 7, key=key, headers=headers)
    return dead_letter_record(Rejection(letter, taken, "m", 1), Topics())


@pytest.mark.parametrize("value", [b"", b"\x00\xff", b"x" * 1_000_000])
def test_the_bytes_and_the_key_stay_as_they_were(value: bytes) -> None:
    sent = _letter(value, key=b"\xff")
    assert (sent.value, sent.key, sent.topic) == (value, b"\xff", Topics().dead_letters)
    assert DeadLetter.from_headers(sent.headers).offset == 7


def test_a_record_with_neither_key_nor_value_can_be_sent() -> None:
    """The client refuses a record that has neither, with an assertion."""
    sent = _letter(None)
    assert (sent.key, sent.value) == (b"", None)


@pytest.mark.parametrize("key", [None, b"k" * 100, b"k" * (4 * 2**20)])
@pytest.mark.parametrize("headers", [(), (("h", b"v" * (3 * 2**20)),), (("empty", b""),)])
@pytest.mark.parametrize("size", [10, MAX_RECORD_BYTES - 10, MAX_RECORD_BYTES * 2])
def test_every_letter_fits_a_record(size: int, headers: Headers, key: bytes | None) -> None:
    sent = _letter(b"x" * size, key, headers)
    assert sent.value is not None
    total = sum(len(name) + len(value or b"") + 10 for name, value in sent.headers)
    assert len(sent.value) + len(sent.key or b"") + total < MAX_RECORD_BYTES
    cut = len(sent.value) < size
    assert (TRUNCATED_HEADER in dict(sent.headers)) is cut
