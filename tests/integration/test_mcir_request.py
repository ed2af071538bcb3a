"""``mcir-m`` on a window of the stream, from rows on a real broker to the command's table."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import numpy as np
import pytest
from command import Running, run, wait_until
from handles import FunctionHandle
from ondemand import Sender, Worker, answers

from attributary.schemas.card import Feature, ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.explanation import Explanation, McirResult
from attributary.schemas.request import ExplanationRequest, Instance, StreamWindow
from attributary.schemas.topics import Topics
from attributary.service.supervisor import READY
from attributary.workers.explainers.mcir import McirResult as Found
from attributary.workers.explainers.mcir import mcir

pytestmark = pytest.mark.integration

NAMES = ("age", "years", "income", "noise")
ROWS, START = 300, 1_700_000_000_000
PARAMETERS = {"bootstraps": 5}


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    age, income, noise = rng.normal(size=(3, ROWS))
    years = age + 0.4 * rng.normal(size=ROWS)
    return np.column_stack([age, years, income, noise]), age + income + 0.2 * noise


def check(found: Explanation, direct: Found) -> None:
    """The answer is what mcir says of the rows in the order of their times."""
    assert found.error is None, found.error
    assert isinstance(found.result, McirResult)
    assert len(found.result.features) == len(NAMES)
    for one in found.result.features:
        i = NAMES.index(one.feature)
        assert (one.score, one.unique, one.joint) == (
            direct.score[i], direct.unique[i], direct.joint[i]
        )  # fmt: skip
        assert one.interval == tuple(direct.interval[i])
        assert one.neighbourhood == [NAMES[j] for j in direct.neighbourhoods[i]]


def knows(worker: Worker) -> bool:
    return worker.hosted.readers[0].catalogue.card("m") is not None


def no_model(card: ModelCard) -> FunctionHandle:
    raise AssertionError("a window of the stream needs no model")


def request(name: str, window: StreamWindow | list[Instance]) -> ExplanationRequest:
    return ExplanationRequest(
        id=name, model="m", method="mcir-m", instances=window, parameters=PARAMETERS
    )


async def whole(
    sender: Sender, connection: Connection, topics: Topics, seconds: float = 40.0
) -> Explanation:
    """Return the first answer that rests on every row."""
    deadline, number = time.monotonic() + seconds, 0
    while True:
        name = f"all{number}"
        await sender.request(request(name, StreamWindow(rows=1000)))
        answer = (await answers(connection, topics, [name])).the(name)
        result = answer.result
        if isinstance(result, McirResult) and result.rows + result.rows_left_out == ROWS + 1:
            return answer
        assert time.monotonic() < deadline, answer
        number += 1
        await asyncio.sleep(0.3)


async def test_a_window_of_the_stream_is_explained_without_a_model(
    connection: Connection, topics: Topics, tmp_path: Path
) -> None:
    X, Q = rows()
    card = ModelCard(
        model="m", features=[Feature(name=name) for name in NAMES], outputs=["y"], samples=1000
    )
    prefix = topics.rows.removesuffix("rows")
    settings = {
        "ATTRIBUTARY_CONNECTION__BOOTSTRAP": connection.bootstrap,
        "ATTRIBUTARY_TOPIC_PREFIX": prefix,
        "ATTRIBUTARY_INGEST__FLUSH_SECONDS": "0.2",
        "ATTRIBUTARY_INGEST__GRID_WAIT_SECONDS": "0.5",
    }
    stream = Running("stream", **settings)
    try:
        async with (
            Sender(connection, topics) as sender,
            Worker(connection, topics, no_model, max_window=1000) as worker,
        ):
            await sender.card(card)
            for number, (x, q) in enumerate(zip(X.tolist(), Q.tolist(), strict=True)):
                row = {
                    "model": "m", "id": f"r{number}", "time": (START + 50 * number) / 1000,
                    "features": dict(zip(NAMES, x, strict=True)), "outputs": q,
                }  # fmt: skip
                await sender.raw(topics.rows, None, json.dumps(row).encode())
            hole = {"model": "m", "time": START / 1000, "outputs": 1.0,
                    "features": {**dict.fromkeys(NAMES, 1.0), "age": None}}  # fmt: skip
            await sender.raw(topics.rows, None, json.dumps(hole).encode())
            await asyncio.to_thread(stream.wait_for, READY)
            answer = await whole(sender, connection, topics)
            half = StreamWindow(rows=1000, start=START + 50 * 100, end=START + 50 * 200)
            await sender.request(request("half", half))
            await sender.request(request("many", StreamWindow(rows=1001)))
            late = await answers(connection, topics, ["half", "many"])
            shown = await asyncio.to_thread(
                run, "explain", "--model", "m", "--method", "mcir-m", "--window", "1h", "--rows",
                "1000", "--parameter", "bootstraps=5", "--save", str(tmp_path / "m.html"), **settings,
            )  # fmt: skip
            assert worker.metric("dead_letters_total") == 0
    finally:
        stream.close()
    check(answer, mcir(X, Q, bootstraps=5, rng=np.random.default_rng(0)))
    assert isinstance(answer.result, McirResult)
    assert (answer.result.rows, answer.result.rows_left_out) == (ROWS, 1)
    assert answer.result.observed
    assert answer.model_rows == 0
    part = mcir(X[100:200], Q[100:200], bootstraps=5, rng=np.random.default_rng(0))
    check(late.the("half"), part)
    error = late.the("many").error
    assert error is not None
    assert "1001 rows of the stream; at most 1000" in error.message
    assert shown.returncode == 0, shown.stderr
    assert "m · y · 300 rows of the stream" in shown.stdout
    assert "not ranked" in shown.stdout
    assert "<svg" in (tmp_path / "m.html").read_text(encoding="utf-8")


async def test_rows_in_the_request_get_their_outputs_from_the_model(
    connection: Connection, topics: Topics
) -> None:
    X, _ = rows()

    def model(rows: np.ndarray) -> np.ndarray:
        return rows[:, 0] + rows[:, 2]

    card = ModelCard(
        model="m", features=[Feature(name=name) for name in NAMES], outputs=["y"]
    )  # fmt: skip
    instances = [Instance(features=dict(zip(NAMES, x, strict=True))) for x in X.tolist()]
    async with (
        Sender(connection, topics) as sender,
        Worker(connection, topics, lambda _: FunctionHandle(model)) as worker,
    ):
        await sender.card(card)
        await asyncio.to_thread(wait_until, lambda: knows(worker), 10.0)
        await sender.request(request("inline", instances))
        given = request("background", instances[:5])
        await sender.request(given.model_copy(update={"background": instances[:5]}))
        await sender.request(request("none", StreamWindow()))
        found = await answers(connection, topics, ["inline", "background", "none"])
    direct = mcir(X, model(X), bootstraps=5, rng=np.random.default_rng(0))
    check(found.the("inline"), direct)
    assert found.the("inline").model_rows == ROWS + 1
    error = found.the("background").error
    assert error is not None
    assert "no use for a background" in error.message
    error = found.the("none").error
    assert error is not None
    assert error.code.value == "samples_missing"
