"""Real request workers, real models, and what dies or is changed under them."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from command import Running, error_line, run, wait_until
from model_server import ModelServer, Row
from ondemand import Sender, answers, request
from records import read_topic_async

from attributary import Explainer
from attributary.schemas.card import Artefact, Feature, ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError, ConfigurationError
from attributary.schemas.explanation import (
    FINAL,
    KIND_HEADER,
    PROGRESS,
    ErrorCode,
    Explanation,
    OrdShapResult,
    Progress,
    TExplainerResult,
)
from attributary.schemas.topics import Topics
from attributary.service.artefacts import artefact_of
from attributary.service.client import NoAnswerError
from attributary.service.registry import find_card
from attributary.service.supervisor import READY

pytestmark = pytest.mark.integration

_SECONDS = 60.0


class Stage:
    """One test's topics, and the request workers that it started."""

    def __init__(self, connection: Connection, topics: Topics, folder: Path) -> None:
        self.connection = connection
        self.topics = topics
        self.folder = folder
        self.running: list[Running] = []

    def start(self, server: ModelServer | None = None, **settings: str) -> Running:
        """Start a worker and return it once it is ready."""
        if server is not None:
            settings["ATTRIBUTARY_MODELS__SERVER_HOSTS"] = json.dumps([server.host])
        worker = Running("ondemand", "--model-root", str(self.folder), **self.where, **settings)
        self.running.append(worker)
        worker.wait_for(READY, _SECONDS)
        return worker

    @property
    def where(self) -> dict[str, str]:
        return {
            "ATTRIBUTARY_CONNECTION__BOOTSTRAP": self.connection.bootstrap,
            "ATTRIBUTARY_TOPIC_PREFIX": self.topics.rows.removesuffix("rows"),
        }

    def explain(self, *arguments: str, **variables: str) -> Any:
        where = {**self.where, **variables}
        return run("explain", "--model", "m", *arguments, seconds=60, **where)

    def register(self, *cards: ModelCard) -> None:
        async def send() -> None:
            async with Sender(self.connection, self.topics) as sender:
                for one in cards:
                    await sender.card(one)

        asyncio.run(send())


@pytest.fixture
def stage(connection: Connection, topics: Topics, tmp_path: Path) -> Iterator[Stage]:
    made = Stage(connection, topics, tmp_path)
    yield made
    for worker in made.running:
        worker.close()


def card(name: str, artefact: Artefact) -> ModelCard:
    features = [Feature(name="a"), Feature(name="b")]
    return ModelCard(model=name, features=features, outputs=["y"], artefact=artefact)


def server_card(name: str, server: ModelServer, *, trees: bool = True) -> ModelCard:
    uri = f"http://{server.host}/v2/models/{name}"
    return card(name, Artefact(uri=uri, piecewise_constant=trees))


def boosted(path: Path) -> Path:
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    data = xgboost.DMatrix(X, label=X[:, 0] * 2 + X[:, 1] ** 2, feature_names=["a", "b"])
    xgboost.train({"max_depth": 3, "nthread": 1}, data, 20).save_model(path)
    return path


def child_of(worker: Running) -> psutil.Process:
    """Return the process that holds a worker's model."""
    children = psutil.Process(worker.process.pid).children(recursive=True)
    (found,) = [child for child in children if "model_child" in " ".join(child.cmdline())]
    return found


ROW = {"a": 1.0, "b": 0.5}
BACKGROUND = [{"a": x, "b": -x} for x in (-1.0, -0.5, 0.0, 0.5, 1.0)]


def test_a_stored_model_is_explained_from_python_and_from_the_shell(stage: Stage) -> None:
    path = boosted(stage.folder / "m.ubj")
    good = card("m", artefact_of(str(path)))
    missing = card("missing", artefact_of(str(path)).model_copy(update={"uri": "gone.ubj"}))
    changed = card("changed", artefact_of(str(path)).model_copy(update={"sha256": "0" * 64}))
    outside = card("outside", artefact_of(str(path)).model_copy(update={"uri": "../m.ubj"}))
    pickled = card("pickled", Artefact(uri="m.pkl", sha256="0" * 64))
    stage.register(good, missing, changed, outside, pickled)
    worker = stage.start()
    where = {"topics": stage.topics}
    told: list[Progress] = []
    with Explainer(stage.connection, model="m", **where) as explainer:
        first = explainer.request(ROW, background=BACKGROUND, on_progress=told.append)
        again = explainer.request([ROW, ROW], output=0, background=BACKGROUND, priority="high")
        none = explainer.request({"a": 1.0})
        with pytest.raises(ConfigurationError, match="instances"):
            explainer.request([])
    assert first.outcome == again.outcome == "result", first
    assert isinstance(first.result, TExplainerResult)
    assert isinstance(again.result, TExplainerResult)
    assert len(again.result.explanations) == 2
    assert again.result.explanations[0] == first.result.explanations[0]
    assert first.artefact_sha256 == good.artefact.sha256  # type: ignore[union-attr]
    assert told[0].state == "started"
    assert none.error is not None
    assert "no value for 'b'" in none.error.message

    async def ask(model: str) -> Explanation:
        async with Explainer(stage.connection, model=model, **where) as explainer:
            found = await asyncio.gather(
                *(explainer.arequest(ROW, background=BACKGROUND) for _ in range(4))
            )
        return found[0]

    async def ask_all() -> list[Explanation]:
        return await asyncio.gather(*map(ask, ("missing", "changed", "outside", "pickled")))

    codes = [answer.error and answer.error.code for answer in asyncio.run(ask_all())]
    assert codes == [
        ErrorCode.ARTEFACT_MISSING,
        ErrorCode.ARTEFACT_CHANGED,
        ErrorCode.ARTEFACT_REFUSED,
        ErrorCode.ARTEFACT_REFUSED,
    ]

    rows, background = stage.folder / "row.csv", stage.folder / "background.json"
    rows.write_text("b,ignored,a\n0.5,x,1\n")
    background.write_text(json.dumps(BACKGROUND))
    shown = stage.explain("--instance", str(rows), "--background", str(background))
    assert shown.returncode == 0, shown
    assert "m · row 0 · y = " in shown.stdout
    assert "base " in shown.stdout
    plain = stage.explain(
        "--instance", str(rows), "--background", str(background), PYTHONIOENCODING="ascii"
    )
    assert plain.returncode == 0, plain
    assert plain.stdout.startswith("m ? row 0 ? y = ")
    said = stage.explain("--instance", str(rows), "--background", str(background), "--json")
    assert Explanation.from_bytes(said.stdout.encode()).result == first.result
    failed = stage.explain("--sample", "1")
    assert failed.returncode == 1
    assert failed.stderr.startswith("error: samples_missing: ")
    url = worker.wait_for(READY).rpartition(" ")[2]
    with urllib.request.urlopen(url, timeout=5) as page:
        metrics = page.read().decode()
    assert 'requests_total{method="t-explainer",model="m",outcome="result"} 5.0' in metrics
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0
    assert not worker.alive()


def test_a_sequence_is_explained_from_the_shell(stage: Stage) -> None:
    """Hats count 3, and a pair of gloves 2, but only after a bag: bag, hat, left and right glove."""
    words = ["[PAD]", "bag", "hat", "left", "right"]

    def after_the_bag(rows: list[Row]) -> list[Any]:
        values = []
        for row in rows:
            said = [words[int(token)] for token in row]
            worn = said[said.index("bag") + 1 :] if "bag" in said else []
            values.append(3.0 * worn.count("hat") + 2.0 * ({"left", "right"} <= set(worn)))
        return values

    features = [Feature(name=f"w{k}", kind="categorical", levels=words) for k in range(4)]
    rows, page = stage.folder / "row.json", stage.folder / "m.html"
    rows.write_text(json.dumps({f"w{k}": words[k + 1] for k in range(4)}))
    arguments = ("--method", "ordshap", "--instance", str(rows), "--parameter", "mask=[PAD]")
    exact = (*arguments, "--parameter", "estimator=exact")
    with ModelServer(after_the_bag, width=4) as server:
        made = server_card("m", server)
        codes = made.artefact.model_copy(update={"categories": "codes"})
        stage.register(made.model_copy(update={"features": features, "artefact": codes}))
        stage.start(server)
        said = stage.explain(*exact, "--json")
        assert said.returncode == 0, said
        answer = Explanation.from_bytes(said.stdout.encode())
        shown = stage.explain(*exact, "--save", str(page))
        assert shown.returncode == 0, shown
    assert isinstance(answer.result, OrdShapResult)
    (order,) = answer.result.explanations
    assert [one.value for one in order.features] == words[1:]
    values = [one.value_importance for one in order.features]
    assert values == pytest.approx([35 / 36, 3 / 4, 2 / 9, 2 / 9])
    places = [one.position_importance for one in order.features]
    assert places == pytest.approx([-13 / 18, 1 / 2, 1 / 9, 1 / 9])
    gamma = np.array([one.gamma for one in order.features])
    assert gamma[0] == pytest.approx([13 / 6, 11 / 9, 1 / 2, 0.0])
    assert (order.prediction, order.base_value) == (5.0, 0.0)
    assert "m · row 0 · y = 5" in shown.stdout
    assert "+0.972" in shown.stdout
    assert "-0.722" in shown.stdout
    assert "<svg" in page.read_text(encoding="utf-8")


def test_nobody_answers_where_no_worker_runs(stage: Stage) -> None:
    explainer = Explainer(stage.connection, model="m", topics=stage.topics)
    began = time.monotonic()
    with explainer, pytest.raises(NoAnswerError, match="no worker has begun with it: is a worker"):
        explainer.request(ROW, timeout=0.5)
    assert time.monotonic() - began < 2.0, "it waited long for an answer that nobody gives"
    # It connects anew after an end, on purpose or not.
    with explainer, pytest.raises(NoAnswerError):
        explainer.request(ROW, timeout=0.1)
    with pytest.raises(BrokerError, match="has no topic"):
        Explainer(stage.connection, model="m", topics=Topics.with_prefix("none.")).request(ROW)

    # A worker that comes later computes nothing: the deadline went with the request.
    async def sent() -> list[str]:
        records = await read_topic_async(stage.connection, stage.topics.requests)
        return [(record.key or b"").decode() for record in records]

    ids = asyncio.run(sent())
    assert len(ids) == 2
    with ModelServer(lambda rows: [a + b for a, b in rows]) as server:
        stage.register(server_card("m", server))
        stage.start(server)
        found = asyncio.run(answers(stage.connection, stage.topics, ids))
        assert not server.asked.is_set()
    assert [found.the(one).outcome for one in ids] == ["expired", "expired"]


def test_a_request_that_is_begun_is_waited_for_beyond_its_deadline(stage: Stage) -> None:
    """A worker that computes says that the deadline has passed, which may take it a while."""
    topic = stage.topics.explanations

    async def answer_late() -> None:
        async with Sender(stage.connection, stage.topics) as sender:
            while not (sent := await read_topic_async(stage.connection, stage.topics.requests)):
                pass
            name = (sent[0].key or b"").decode()
            told = Progress(id=name, state="started", attempt=1, at=0)
            kind = [(KIND_HEADER, PROGRESS)]
            await sender.raw(topic, b"p|" + name.encode(), told.to_bytes(), kind)
            await asyncio.sleep(4.0)
            late = Explanation(id=name, outcome="expired", requested_at=0, computed_at=0, seconds=2)
            await sender.raw(topic, name.encode(), late.to_bytes(), [(KIND_HEADER, FINAL)])

    async def ask() -> Explanation:
        async with Explainer(stage.connection, model="m", topics=stage.topics) as explainer:
            found, _ = await asyncio.gather(explainer.arequest(ROW, timeout=3.0), answer_late())
            return found

    assert asyncio.run(ask()).outcome == "expired"


def test_a_request_that_no_message_holds_names_its_rows(stage: Stage) -> None:
    rows = [{f"feature {k}": 0.1234567890123456 for k in range(300)}] * 1000
    with (
        Explainer(stage.connection, model="m", topics=stage.topics) as explainer,
        pytest.raises(ConfigurationError) as caught,
    ):
        explainer.request(rows, background=rows[:1])
    assert re.search(
        r"takes [\d,]{9,} bytes \(1,000 rows to explain and 1 row of background\), more than one message "
        r".*: ask for fewer rows at a time",
        str(caught.value),
    )


def test_register_refuses_what_no_worker_opens(stage: Stage) -> None:
    declared = stage.folder / "card.json"
    declared.write_text('{"model": "m", "features": [{"name": "a"}, {"name": "b"}]}')
    path = stage.folder / "m.ubj"

    def register(artefact: Path, **settings: str) -> Any:
        where = {**stage.where, **settings}
        return run("register", str(declared), "--artefact", str(artefact), **where)

    for name in ("m.pkl", "m.ubj"):
        (stage.folder / name).write_bytes(pickle.dumps({"a": 1}))
        line = error_line(register(stage.folder / name))
        assert "pickle" in line
        assert "which run" in line
        assert "save the model as XGBoost UBJ" in line
    asyncio.run(_no_card(stage))
    boosted(path)
    hint = f"attributary ondemand --model-root {stage.folder}"
    assert hint in register(path).stdout
    roots = json.dumps([str(stage.folder / "other")])
    elsewhere = register(path, ATTRIBUTARY_MODELS__ROOTS=roots)
    assert f"{hint}; it lies outside {stage.folder}/other" in elsewhere.stdout
    allowed = register(path, ATTRIBUTARY_MODELS__ROOTS=json.dumps([str(stage.folder)]))
    assert allowed.stdout == "replaced the card of m: 2 features, no outputs declared, 2 windows\n"


async def _no_card(stage: Stage) -> None:
    assert await find_card(stage.connection, stage.topics, "m") is None


def test_a_worker_killed_in_the_middle_and_a_request_that_kills_every_worker(stage: Stage) -> None:
    hold = threading.Event()
    hold.set()

    def answer(rows: list[Row]) -> list[float]:
        if rows[0][0] > 50 or (rows[0][0] > 5 and hold.is_set()):
            server.let_go.wait(60)
        return [a + b for a, b in rows]

    with ModelServer(answer) as server:
        stage.register(server_card("m", server), server_card("n", server))
        settings = {"ATTRIBUTARY_ONDEMAND__ATTEMPTS": "2"}
        first = stage.start(server, **settings)

        async def send() -> None:
            async with Sender(stage.connection, stage.topics) as sender:
                await sender.request(request("before", value=1.0))
                await answers(stage.connection, stage.topics, ["before"])
                await sender.request(request("slow", value=10.0))
                await sender.request(request("deadly", "n", value=100.0))

        asyncio.run(send())
        _wait_begun(stage, "slow", "deadly")
        for process in first.alive():
            process.kill()
        hold.clear()
        second = stage.start(server, **settings)
        found = asyncio.run(answers(stage.connection, stage.topics, ["slow"]))
        assert found.the("slow").outcome == "result"
        assert found.the("slow").attempt == 2
        _wait_begun(stage, "deadly", attempt=2)
        for process in second.alive():
            process.kill()
        stage.start(server, **settings)
        found = asyncio.run(answers(stage.connection, stage.topics, ["deadly"]))
        error = found.the("deadly").error
        assert error is not None
        assert error.code == ErrorCode.WORKER_LOST, error
        assert found.the("before").attempt == 1
        assert found.the("slow").outcome == "result"


def _wait_begun(stage: Stage, *ids: str, attempt: int = 1) -> None:
    async def begun() -> bool:
        found = await answers(stage.connection, stage.topics, [])
        return all(
            any(p.state == "started" and p.attempt == attempt for p in found.progress.get(one, ()))
            for one in ids
        )

    wait_until(lambda: asyncio.run(begun()), 30)


def test_a_worker_that_was_stopped_for_long_adds_no_second_answer(stage: Stage) -> None:
    """SIGSTOP in the middle of a request, another worker answers it, SIGCONT."""
    first_time = threading.Event()

    def answer(rows: list[Row]) -> list[float]:
        if not first_time.is_set():
            first_time.set()
            server.let_go.wait(60)
        return [a - b for a, b in rows]

    with ModelServer(answer) as server:
        stage.register(server_card("m", server))
        stopped = stage.start(server)

        async def send() -> None:
            async with Sender(stage.connection, stage.topics) as sender:
                await sender.request(request("r"))

        asyncio.run(send())
        assert first_time.wait(30)
        os.kill(stopped.process.pid, signal.SIGSTOP)
        try:
            stage.start(server)
            found = asyncio.run(answers(stage.connection, stage.topics, ["r"]))
            assert found.the("r").attempt == 2
        finally:
            os.kill(stopped.process.pid, signal.SIGCONT)
        server.let_go.set()
        time.sleep(3.0)
        found = asyncio.run(answers(stage.connection, stage.topics, ["r"]))
        (one, *others) = found.final["r"]
        assert one.attempt == 2
        assert all(other == one for other in others), "the first holds, and is repeated at most"
        stopped.process.send_signal(signal.SIGTERM)
        assert stopped.wait(20) == 0


def test_models_that_misbehave_end_their_requests_and_not_the_worker(stage: Stage) -> None:
    def answer(rows: list[Row]) -> list[Any]:
        first = rows[0][0]
        if first == 11.0:
            raise ConnectionAbortedError
        if first == 12.0:
            return [None] * len(rows)
        if first == 13.0:
            return [1.0]
        if first == 14.0:
            server.let_go.wait(60)
        return [a * b for a, b in rows]

    with ModelServer(answer) as server:
        stage.register(server_card("m", server))
        worker = stage.start(server, ATTRIBUTARY_ONDEMAND__CONCURRENCY="1")

        async def ask() -> None:
            async with Sender(stage.connection, stage.topics) as sender:
                for name, value in {"raises": 11.0, "nan": 12.0, "shape": 13.0}.items():
                    await sender.request(request(name, value=value))
                await answers(stage.connection, stage.topics, ["raises", "nan", "shape"])
                server.asked.clear()
                await sender.request(request("hangs", value=14.0), seconds=2.0)
                await answers(stage.connection, stage.topics, ["hangs"])
                server.let_go.set()
                await sender.request(request("good"))
                await answers(stage.connection, stage.topics, ["good"])
                server.let_go.clear()
                server.asked.clear()
                await sender.request(request("killed", value=14.0))
                assert await asyncio.to_thread(server.asked.wait, 20)
                child_of(worker).kill()
                await sender.request(request("after"))

        asyncio.run(ask())
        ids = ["raises", "nan", "shape", "hangs", "good", "killed", "after"]
        found = asyncio.run(answers(stage.connection, stage.topics, ids))
        told = {
            name: answer.error.code if answer.error is not None else answer.outcome
            for name in ids
            for answer in [found.the(name)]
        }
        assert told == {
            "raises": ErrorCode.MODEL_FAILED,
            "nan": ErrorCode.BAD_OUTPUT,
            "shape": ErrorCode.BAD_OUTPUT,
            "hangs": "expired",
            "good": "result",
            "killed": ErrorCode.MODEL_FAILED,
            "after": "result",
        }
        assert worker.process.poll() is None
