"""Dead letters by themselves: some rows of a message, whose it is, and which letters are to be trusted."""

from __future__ import annotations

import pytest
from aiokafka import ConsumerRecord

from attributary.schemas.arrow import decode_arrow_rows, encode_arrow_rows
from attributary.schemas.dead_letter import DeadLetter, Headers, Origin
from attributary.schemas.errors import RejectedError
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.service.letter_blocks import recounted
from attributary.service.letter_content import models_of, take_rows
from attributary.service.letter_index import Letter, LetterIndex


def _record(value: bytes | None, headers: Headers = ()) -> ConsumerRecord:
    return ConsumerRecord("d", 0, 0, 0, 0, None, value, None, 0, 0, tuple(headers))


ARROW = encode_arrow_rows("m", {"x": [1.0, 2.0, 3.0], "y": [4.0, 5.0, 6.0]}, ["y"])


@pytest.mark.parametrize(
    ("value", "rows", "taken"),
    [
        (b' [1, {"a": "[,]"} ,3]', [1], b'[{"a": "[,]"}]'),
        (b"[1,2,3]", [0, 2], b"[1,3]"),
        (b"[1,2,3]", [], b"[1,2,3]"),
        (b"\xff not JSON", [], b"\xff not JSON"),
        (b' {"a": 1}', [0], b' {"a": 1}'),
        (b"[NaN, -Infinity, 1]", [0, 1], b"[NaN,-Infinity]"),
    ],
)
def test_rows_of_json_are_taken_as_they_are(value: bytes, rows: list[int], taken: bytes) -> None:
    assert take_rows(value, (), rows) == taken


@pytest.mark.parametrize(
    ("value", "rows"),
    [(b"[1]", [1]), (b'{"a": 1}', [1]), (b"[1", [0]), (ARROW, [3]), (ARROW[:40], [0])],
)
def test_rows_that_are_not_there_are_refused(value: bytes, rows: list[int]) -> None:
    with pytest.raises(RejectedError):
        take_rows(value, (), rows)


def test_rows_of_arrow_keep_their_schema() -> None:
    taken = take_rows(ARROW, (), [0, 2])
    assert decode_arrow_rows(taken).outputs["y"].tolist() == [4.0, 6.0]
    assert take_rows(taken, (), [0, 1]) == taken


@pytest.mark.parametrize(
    ("value", "headers", "models"),
    [
        (b'{"model": "a"}', [], ("a",)),
        (b'{"model": "a"}', [("model", b"h")], ("a",)),
        (b"{}", [("Model", b"h")], ("h",)),
        (b'[{"model": "b"}, {}, {"model": "a"}]', [], ("a", "b")),
        (ARROW, [], ("m",)),
        (ARROW[:40], [("model", b"h")], ("h",)),
        (b"\xff", [], ()),
        (None, [], ()),
        (b'{"model": 7}', [], ()),
        (b"[" * 100_000, [], ()),
    ],
)
def test_whose_a_message_is(value: bytes | None, headers: Headers, models: tuple[str, ...]) -> None:
    assert models_of(_record(value, headers)) == models


def _letters(*letters: DeadLetter) -> list[Letter]:
    index = LetterIndex()
    for letter in letters:
        index.add(_record(b"x", letter.headers()))
    return list(index)


def _manifest(block: int, upto: int, **rejected: int) -> Manifest:
    return Manifest(
        topic="rows",
        partition=0,
        partitions=1,
        block=block,
        upto=upto,
        previous=None,
        sealed=True,
        end_offset=upto,
        models={"m": ModelCount(rejected=rejected)},
    )


def _letter(offset: int, rows: tuple[int, ...] = (), count: int = 1) -> DeadLetter:
    return DeadLetter("rows", 0, offset, "wrong_type", "no", 5, rows, count)


def test_letters_are_trusted_where_the_manifest_rejects_as_many_rows() -> None:
    letters = _letters(
        _letter(0),
        _letter(1, (3, 4), 2),
        _letter(1, (7,), 1),
        _letter(1, (3, 4), 2),  # repeated
        _letter(10, count=40),  # an array, all of it
        _letter(20),
        _letter(30),
    )
    manifests = [
        _manifest(0, 10, wrong_type=3, empty=1),
        _manifest(10, 20, wrong_type=40),
        _manifest(20, 25),
    ]
    assert recounted(letters, manifests) == {Origin("rows", 0, 20)}
    manifests[1] = _manifest(10, 20, wrong_type=39)
    assert Origin("rows", 0, 10) in recounted(letters, manifests)
    manifests[0] = _manifest(0, 10, wrong_type=3)
    assert {Origin("rows", 0, 0), Origin("rows", 0, 1)} <= recounted(letters, manifests)
