"""Progress and answers carry what the request's headers say of the call that it is part of."""

from __future__ import annotations

import pytest
from handles import FunctionHandle
from ondemand import Sender, Worker, answers, request
from records import read_topic_async

from attributary.schemas.connection import Connection
from attributary.schemas.explanation import FINAL, KIND_HEADER, PROGRESS
from attributary.schemas.topics import Topics

pytestmark = pytest.mark.integration

CONTEXT = [
    ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("tracestate", b"vendor=1"),
    ("baggage", b"tenant=7"),
    ("ce_id", b"4711"),
]


async def test_trace_headers_come_back(connection: Connection, topics: Topics) -> None:
    async with (
        Sender(connection, topics) as sender,
        Worker(connection, topics, lambda card: FunctionHandle(lambda X: X[:, 0])),
    ):
        one = request("r", "nobody's")
        headers = [*CONTEXT, ("other", b"stays")]
        await sender.raw(topics.requests, b"r", one.to_bytes(), headers)
        await answers(connection, topics, ["r"])
        records = await read_topic_async(connection, topics.explanations)
    assert [dict(record.headers)[KIND_HEADER] for record in records] == [PROGRESS, FINAL]
    for record in records:
        own = [pair for pair in record.headers if not pair[0].startswith("attributary-")]
        assert own == CONTEXT
