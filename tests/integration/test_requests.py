"""Requests on a real broker: each gets exactly one final answer, whatever it holds and whoever dies."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from handles import FunctionHandle, Held
from ondemand import Answers, Sender, Worker, answers, request, until
from records import read_topic_async

from attributary.schemas.card import Artefact, Feature, ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.explanation import ErrorCode, TExplainerResult
from attributary.schemas.topics import Topics
from attributary.workers.explainers.t_explainer import t_explain
from attributary.workers.ondemand.answers import WORKER_HEADER, AnswerLog
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.stream.closing import close

pytestmark = pytest.mark.integration


def smooth(X: np.ndarray) -> np.ndarray:
    return np.sin(X[:, 0]) * X[:, 1] + X[:, 0] ** 2


def fail(X: np.ndarray) -> np.ndarray:
    raise ZeroDivisionError("of all things")


def open_model(card: ModelCard) -> FunctionHandle:
    """Open a model that does what its name says."""
    if card.model == "unloadable":
        raise RequestError(ErrorCode.MODEL_NOT_LOADABLE, "it is no model")
    functions: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "raises": fail,
        "three": lambda X: np.column_stack([X[:, 0], X[:, 1], X.sum(axis=1)]),
        "slow": lambda X: time.sleep(0.8) or X[:, 0],
    }
    return FunctionHandle(functions.get(card.model, smooth))


def card(name: str, outputs: tuple[str, ...] = ("y",)) -> ModelCard:
    return ModelCard(
        model=name,
        features=[Feature(name="a"), Feature(name="b")],
        outputs=list(outputs),
        artefact=Artefact(uri=f"/{name}.ubj", sha256="0" * 64),
    )


async def committed(connection: Connection, topics: Topics) -> dict[TopicPartition, int | None]:
    """Return what the request workers have committed."""
    consumer = AIOKafkaConsumer(
        **connection.client_arguments(), group_id=f"{topics.requests}-ondemand",
        enable_auto_commit=False,
    )  # fmt: skip
    await consumer.start()
    try:
        parts = [TopicPartition(topics.requests, number) for number in range(4)]
        return {part: await consumer.committed(part) for part in parts}
    finally:
        await close(consumer.stop())


async def all_committed(connection: Connection, topics: Topics) -> None:
    """Wait until every request that was sent is committed."""
    sent = Counter(
        record.partition for record in await read_topic_async(connection, topics.requests)
    )

    async def reached() -> bool:
        found = await committed(connection, topics)
        return all((found[TopicPartition(topics.requests, p)] or 0) == n for p, n in sent.items())

    await until(reached)


async def test_every_request_gets_the_answer_that_it_deserves(
    connection: Connection, topics: Topics
) -> None:
    many = [{"features": {"a": float(i), "b": 0.0}} for i in range(11)]
    expected = {
        "good": None,
        "again": None,
        "no-model": ErrorCode.MODEL_UNKNOWN,
        "unloadable": ErrorCode.MODEL_NOT_LOADABLE,
        "raises": ErrorCode.MODEL_FAILED,
        "three": ErrorCode.BAD_OUTPUT,
        "no-output": ErrorCode.BAD_REQUEST,
        "far-output": ErrorCode.BAD_REQUEST,
        "no-feature": ErrorCode.BAD_REQUEST,
        "text": ErrorCode.BAD_REQUEST,
        "bad-parameter": ErrorCode.BAD_REQUEST,
        "many": ErrorCode.LIMIT_EXCEEDED,
        "background": ErrorCode.LIMIT_EXCEEDED,
        "rows": ErrorCode.LIMIT_EXCEEDED,
        "slow": ErrorCode.LIMIT_EXCEEDED,
        "no-samples": ErrorCode.SAMPLES_MISSING,
        "junk": ErrorCode.BAD_REQUEST,
        "empty": ErrorCode.BAD_REQUEST,
        "schema": ErrorCode.BAD_REQUEST,
        "large": ErrorCode.LIMIT_EXCEEDED,
        "other-id": ErrorCode.BAD_REQUEST,
    }  # fmt: skip
    async with (
        Sender(connection, topics) as sender,
        Worker(
            connection, topics, open_model,
            max_instances=10, max_background=10, max_model_rows=100, max_seconds=1.5,
            max_request_bytes=20_000, concurrency=3,
        ) as worker,
    ):  # fmt: skip
        for name in ("m", "unloadable", "raises", "three", "slow"):
            await sender.card(card(name))
        await until(lambda: _knows(worker, "slow"))
        requests = [
            request("good"),
            request("again"),
            request("no-model", "nobody"),
            request("unloadable", "unloadable"),
            request("raises", "raises"),
            request("three", "three"),
            request("no-output", output="z"),
            request("far-output", output=1),
            request("no-feature", instances=[{"features": {"a": 1, "c": 2}}]),
            request("text", instances=[{"features": {"a": "x", "b": 2}}]),
            request("bad-parameter", parameters={"max_iterations": "few"}),
            request("many", instances=many),
            request("background", background=many),
            request("rows", instances=many[:10]),
            request("slow", "slow", instances=many[:10], parameters={"max_iterations": 100}),
            request("no-samples", background=None),
        ]
        for one in requests:
            await sender.request(one)
        topic = topics.requests
        await sender.raw(topic, b"junk", b"\x00\xffjunk")
        await sender.raw(topic, b"empty", b"")
        await sender.raw(topic, b"schema", b'{"schema":"attributary.request/9"}')
        await sender.raw(topic, b"large", b"[" * 20_001)
        await sender.raw(topic, None, request("other-id").to_bytes())
        await sender.raw(topic, None, b"nobody knows whose")
        await sender.raw(topic, b"two words", b"{}")
        await sender.request(request("late"), seconds=-1)
        await sender.request(request("late-high"), seconds=-1, high=True)
        await sender.cancel("taken-back")
        await sender.request(request("taken-back"))
        found = await answers(
            connection, topics, [*expected, "late", "late-high", "taken-back"], seconds=40
        )
        await all_committed(connection, topics)
        codes = {
            name: None if (error := found.the(name).error) is None else error.code
            for name in expected
        }
        assert codes == expected
        outcomes = {name: found.the(name).outcome for name in found.final}
        assert Counter(outcomes.values()) == {
            "result": 2, "error": len(expected) - 2, "expired": 2, "cancelled": 1
        }  # fmt: skip
        assert outcomes["taken-back"] == "cancelled"
        _check_result(found)
        for name, said in {
            "no-model": "no model 'nobody'",
            "three": "returns 3 outputs; its card names 1",
            "no-output": "no output 'z'; it has ['y']",
            "no-feature": "no feature 'c'",
            "bad-parameter": "parameters: max_iterations:",
            "many": "11 instances; at most 10",
            "slow": "not done after 1.5 s",
            "no-samples": "samples above 0",
            "other-id": "it must be the request's id",
        }.items():
            error = found.the(name).error
            assert error is not None
            assert said in error.message, error.message
        letters = await read_topic_async(connection, topics.dead_letters)
        assert sorted(letter.value for letter in letters) == [b"nobody knows whose", b"{}"]
        assert {DeadLetter.from_headers(letter.headers).topic for letter in letters} == {topic}
        assert worker.metric("dead_letters_total") == 2
        result = {"model": "m", "method": "t-explainer", "outcome": "result"}
        assert worker.metric("requests_total", **result) == 2
        assert worker.metric("errors_total", model="", code="model_unknown") == 1
        assert worker.metric("in_flight_requests") == 0
        assert worker.metric("models_open") == 4
        assert worker.metric("device_memory_bytes", device="cpu") == 4 * 1000
        assert worker.metric("device_busy_seconds_total", device="cpu") > 0.8  # slow, once at least


async def _knows(worker: Worker, model: str) -> bool:
    return worker.hosted.readers[0].catalogue.card(model) is not None


def _check_result(found: Answers) -> None:
    """The result is what the explainer says of the same function, and the same every time."""
    good, again = found.the("good"), found.the("again")
    assert isinstance(good.result, TExplainerResult)
    assert good.result == again.result
    direct = t_explain(
        smooth, [[1.0, 0.5]], background=[[-1.0, 1.0], [0.0, 0.0], [1.0, -1.0]],
        precision="float64", piecewise_constant=False, batch_size=256,
    )  # fmt: skip
    (local,) = good.result.explanations
    assert [one.contribution for one in local.features] == direct.contributions[0].tolist()
    assert [one.gradient for one in local.features] == direct.gradient[0].tolist()
    assert [one.value for one in local.features] == [1.0, 0.5]
    assert local.prediction == smooth(np.array([[1.0, 0.5]]))[0]
    total = sum(one.contribution or 0.0 for one in local.features)
    assert abs(local.base_value + total + local.additivity_gap - local.prediction) < 1e-12
    assert good.background_rows == 3
    assert good.artefact_sha256 == "0" * 64
    states = [progress.state for progress in found.progress["good"]]
    assert states[0] == "started"
    assert found.progress["good"][0].attempt == good.attempt == 1


async def test_a_thousand_requests_and_two_workers_one_of_which_comes_later(
    connection: Connection, topics: Topics
) -> None:
    ids = [f"r{number}" for number in range(1000)]
    taken_back, late = set(ids[3::10]), set(ids[7::10])
    async with Sender(connection, topics) as sender:
        await sender.card(card("m"))
        for name in ids[3::20]:
            await sender.cancel(name)
        await asyncio.gather(
            *(
                sender.request(request(name, value=float(place)), -1.0 if name in late else 120.0)
                for place, name in enumerate(ids)
            )
        )
        async with Worker(connection, topics, open_model, queue=200) as first:
            # The others while the requests are in the queue.
            for name in ids[13::20]:
                await sender.cancel(name)
            async with Worker(connection, topics, open_model) as second:
                found = await answers(connection, topics, ids, seconds=60)
                await all_committed(connection, topics)
                shares = [
                    worker.metric(
                        "requests_total", model="m", method="t-explainer", outcome="result"
                    )
                    for worker in (first, second)
                ]
    assert found.final.keys() == set(ids)
    outcomes = {name: found.the(name).outcome for name in ids}
    assert {name for name, outcome in outcomes.items() if outcome == "expired"} == late
    cancelled = {name for name, outcome in outcomes.items() if outcome == "cancelled"}
    assert set(ids[3::20]) <= cancelled <= taken_back
    assert Counter(outcomes.values())["error"] == 0
    for place, name in enumerate(ids):
        answer = found.the(name)
        if answer.outcome == "result":
            assert isinstance(answer.result, TExplainerResult)
            assert answer.result.explanations[0].features[0].value == float(place)
    assert sum(shares) == Counter(outcomes.values())["result"]
    assert min(shares) > 0, "both have worked"


async def test_what_is_answered_is_not_computed_again(
    connection: Connection, topics: Topics
) -> None:
    ids = [f"r{number}" for number in range(12)]
    async with Sender(connection, topics) as sender:
        await sender.card(card("m"))
        for name in ids:
            await sender.request(request(name))
        async with Worker(connection, topics, open_model) as worker:
            # As where a worker dies between its answers and its next commit.
            worker.hosted.groups[0]._commit = _nothing
            await answers(connection, topics, ids)
        assert set((await committed(connection, topics)).values()) == {None}
        # The same once more: a producer's retry.
        await sender.request(request(ids[0]))
        await sender.request(request("new"))
        async with Worker(connection, topics, open_model) as worker:
            found = await answers(connection, topics, ["new"])
            await all_committed(connection, topics)
            for name in ids:
                found.the(name)
            assert worker.metric("repeated_requests_total") == len(ids) + 1
            evaluated = worker.metric("joined_requests_count")
    assert found.the("new").model_calls == evaluated


async def test_high_priority_goes_first_and_a_full_queue_pauses(
    connection: Connection, topics: Topics
) -> None:
    held = Held(lambda X: X[:, 0])
    order: list[float] = []

    def model(X: np.ndarray) -> np.ndarray:
        order.append(float(X[0, 0]))
        return held(X)

    async with Sender(connection, topics) as sender:
        await sender.card(card("m"))
        for number in range(12):
            await sender.request(request(f"n{number}", value=100.0 + number))
        async with Worker(
            connection, topics, lambda _: FunctionHandle(model), concurrency=1, queue=2
        ) as worker:
            await until(lambda: _paused(worker))
            for number in range(2):
                await sender.request(request(f"h{number}", value=200.0 + number), high=True)
            await until(lambda: _queued(worker, "high"))
            held.let_go.set()
            ids = [f"n{n}" for n in range(12)] + ["h0", "h1"]
            await answers(connection, topics, ids)
    # The instances' own rows, each when it was asked first.
    begun = list(dict.fromkeys(value for value in order if value >= 100 and value.is_integer()))
    assert [value >= 200 for value in begun] == [False, True, True, *[False] * 11]


async def _nothing() -> None:
    return None


async def _paused(worker: Worker) -> bool:
    return worker.metric("paused_partitions") > 0 and worker.metric("in_flight_requests") == 1


async def _queued(worker: Worker, priority: str) -> bool:
    return worker.metric("queued_requests", priority=priority) >= 2


async def test_a_request_ends_while_its_model_hangs(connection: Connection, topics: Topics) -> None:
    """By its deadline, or when it is taken back; what waits in the queue does so as well."""
    opened: list[FunctionHandle] = []

    def hanging(of: ModelCard) -> FunctionHandle:
        handle = FunctionHandle(smooth)
        if of.model == "hangs":
            handle._function = lambda X: handle.closed.wait(30) and fail(X)
        opened.append(handle)
        return handle

    async with Sender(connection, topics) as sender:
        await sender.card(card("hangs"))
        await sender.card(card("m"))
        async with Worker(connection, topics, hanging, concurrency=2) as worker:
            await sender.request(request("late", "hangs"), seconds=2.0)
            await sender.request(request("back", "hangs"), seconds=60.0)
            for number in range(4):
                await sender.request(request(f"waits{number}"), seconds=2.5)
            await sender.request(request("waits-long"), seconds=60.0)
            await until(lambda: _in_flight(worker, 2))
            await sender.cancel("back")
            started = time.monotonic()
            ids = ["late", "back", "waits-long", *(f"waits{n}" for n in range(4))]
            found = await answers(connection, topics, ids)
            assert time.monotonic() - started < 8.0
            outcomes = {name: found.the(name).outcome for name in ids}
            assert outcomes["late"] == "expired"
            assert outcomes["back"] == "cancelled"
            assert outcomes["waits-long"] == "result"
            late = found.the("late")
            assert 0 <= late.computed_at - late.requested_at - 2000 < 1500


async def _in_flight(worker: Worker, count: int) -> bool:
    return worker.metric("in_flight_requests") == count


async def test_the_loser_of_two_answers_repeats_the_one_that_holds(
    connection: Connection, topics: Topics
) -> None:
    """Compaction keeps the last record of a key, and the first in log order is the answer."""
    async with (
        Sender(connection, topics) as sender,
        Worker(connection, topics, open_model) as worker,
    ):
        log = worker.hosted.readers[1]
        assert isinstance(log, AnswerLog)
        await sender.card(card("m"))
        await sender.request(request("r"))
        await answers(connection, topics, ["r"])
        (first,) = await _finals(connection, topics)
        headers_of_first = dict(first.headers)
        own = headers_of_first[WORKER_HEADER]
        # Another worker's answer to the same request, and then this worker's own as a zombie's.
        await sender.raw(
            topics.explanations, b"x", first.value,
            [(name, b"other" if name == WORKER_HEADER else value) for name, value in first.headers],
        )  # fmt: skip
        await sender.raw(
            topics.explanations, b"x", b'{"late":1}',
            [(name, own if name == WORKER_HEADER else value) for name, value in first.headers],
        )  # fmt: skip

        async def repeated() -> bool:
            return len([r for r in await _finals(connection, topics) if r.key == b"x"]) == 3

        await until(repeated)
        await asyncio.sleep(0.5)
        last = [record for record in await _finals(connection, topics) if record.key == b"x"]
        assert [record.value for record in last] == [first.value, b'{"late":1}', first.value]
        assert worker.metric("duplicate_answers_total") == 1


async def _finals(connection: Connection, topics: Topics) -> list:
    records = await read_topic_async(connection, topics.explanations)
    return [record for record in records if not record.key.startswith(b"p|")]
