"""What ``top`` does while the broker is away, against readers that stand in for it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError

from attributary.schemas.errors import BrokerError
from attributary.schemas.topics import Topics
from attributary.service.log_extents import Extent
from attributary.service.top import feed
from attributary.service.top.board import Board
from attributary.service.top.feed import SilentError, keep_trying, refresh_ends

TOPICS = Topics()
ROWS, DEAD = TopicPartition(TOPICS.rows, 0), TopicPartition(TOPICS.dead_letters, 0)


class FakeExtents:
    """Tells the ends that a test sets; None: it never answers."""

    def __init__(self, found: Mapping[TopicPartition, Extent] | None) -> None:
        self.found = found

    async def refresh(self) -> Mapping[TopicPartition, Extent]:
        if self.found is None:
            await asyncio.sleep(3600)
        return self.found or {}


async def test_an_answer_tells_the_dead_letters_and_that_the_broker_is_back() -> None:
    board = Board("b:9092", trouble="")
    reader = FakeExtents({ROWS: Extent(0, 40, None), DEAD: Extent(2, 9, None)})
    await refresh_ends(board, TOPICS, reader, 5.0)
    assert (board.dead_letters, board.trouble) == (7, None)
    assert board.answered is not None


async def test_a_broker_that_does_not_answer_is_found_out_in_time() -> None:
    board = Board("b:9092")
    with pytest.raises(SilentError, match=r"b:9092 has not answered for 0\.05 s"):
        await asyncio.wait_for(refresh_ends(board, TOPICS, FakeExtents(None), 0.05), 5.0)
    assert board.answered is None


async def test_it_keeps_trying_and_tells_what_is_wrong_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "_EVERY_SECONDS", 0.0)
    board = Board("b:9092")
    troubles: list[str | None] = []
    errors = [SilentError("no broker"), BrokerError("no such topic"), KafkaTimeoutError()]

    async def session() -> None:
        troubles.append(board.trouble)
        board.answered, board.trouble = 1, None
        if errors:
            raise errors.pop(0)
        await asyncio.sleep(3600)

    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(keep_trying(board, session), 0.3)
    assert troubles == [None, "", "no such topic", str(KafkaTimeoutError())]
    assert board.trouble is None, "the last session has its answers"


@pytest.mark.parametrize(
    "error", [BrokerError("no such topic"), KafkaTimeoutError("no such topic")]
)
async def test_a_broker_that_never_answered_ends_it(error: Exception) -> None:
    async def session() -> None:
        raise error

    with pytest.raises(BrokerError, match="no such topic"):
        await asyncio.wait_for(keep_trying(Board("b:9092"), session), 5.0)
