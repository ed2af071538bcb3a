"""The same request more than once at one time: one computation, and one final answer."""

from __future__ import annotations

import asyncio

import pytest
from handles import FunctionHandle
from ondemand import Answers, Sender, Worker, answers, request, until

from attributary.schemas.card import Artefact, Feature, ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics

pytestmark = pytest.mark.integration

IDS = [f"r{number}" for number in range(40)]
DONE = {"model": "m", "method": "t-explainer", "outcome": "result"}
CARD = ModelCard(
    model="m",
    features=[Feature(name="a"), Feature(name="b")],
    outputs=["y"],
    artefact=Artefact(uri="/m.ubj", sha256="0" * 64),
)


def open_model(card: ModelCard) -> FunctionHandle:
    return FunctionHandle(lambda X: X[:, 0] * X[:, 1])


async def ask(sender: Sender, worker: Worker, second: str) -> Answers:
    """Send every request twice, and return the answers once both of each are done."""
    await sender.card(CARD)
    await until(lambda: _knows(worker))
    for number, name in enumerate(IDS):
        await sender.request(request(name))
        # While the first is read, computed, or on its way to the log.
        await asyncio.sleep((0.0, 0.005, 0.02)[number % 3])
        await sender.request(request(name), high=second == "high")
    await until(lambda: _done(worker, 2 * len(IDS)))
    return await answers(sender._connection, sender.topics, IDS)


async def _knows(worker: Worker) -> bool:
    return worker.hosted.readers[0].catalogue.card("m") is not None


async def _done(worker: Worker, count: int) -> bool:
    """Whether so many are answered, or are found to be."""
    return (
        worker.metric("repeated_requests_total") + worker.metric("requests_total", **DONE) >= count
    )


@pytest.mark.parametrize("second", ["normal", "high"])
async def test_a_request_sent_twice_is_computed_once(
    connection: Connection, topics: Topics, second: str
) -> None:
    async with (
        Sender(connection, topics) as sender,
        Worker(connection, topics, open_model) as worker,
    ):
        found = await ask(sender, worker, second)
        assert worker.metric("requests_total", **DONE) == len(IDS)
        assert worker.metric("duplicate_answers_total") == 0
    for name in IDS:
        assert found.the(name).attempt == 1
        states = [one.state for one in found.progress[name]]
        assert states.count("started") == 1, (name, states)
