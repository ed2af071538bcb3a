"""Watched predict functions: what they publish, and that the caller notices nothing."""

from __future__ import annotations

import asyncio
import inspect
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from outbox_rows import take_rows
from pydantic import BaseModel

from attributary import Publisher
from attributary.schemas.errors import RejectedError
from attributary.service.embedded import free_port

NAMES = ["a", "b"]
X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, np.nan]])
EXPECTED = [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}, {"a": 5.0, "b": None}]


@pytest.fixture
def nowhere() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.fixture
def publisher(nowhere: str) -> Iterator[Publisher]:
    made = Publisher(nowhere, model="m", feature_names=NAMES)
    yield made
    made.close(0.0)


def seen(publisher: Publisher) -> list[tuple[Any, Any]]:
    return [(row["features"], row["outputs"]) for row in take_rows(publisher)]


class Record(NamedTuple):
    a: float
    b: float


@dataclass
class Data:
    a: float
    b: float


class Model(BaseModel):
    a: float
    b: float


class Struct(msgspec.Struct):
    a: float
    b: float


@pytest.mark.parametrize(
    "given",
    [
        X,
        X.tolist(),
        tuple(map(tuple, X.tolist())),
        pd.DataFrame(X, columns=NAMES),
        pd.DataFrame({"a": pd.array([1, 3, 5]), "b": pd.array([2, 4, None], dtype="Int64")}),
        pa.table({"a": X[:, 0], "b": pa.array([2.0, 4.0, None])}),
        {"a": X[:, 0], "b": X[:, 1]},
        {"a": [1.0, 3.0, 5.0], "b": (2.0, 4.0, None)},
        [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}, {"a": 5.0}],
        [Model(a=1, b=2), Model(a=3, b=4), Model(a=5, b=float("nan"))],
        [Data(1, 2), Data(3, 4), Data(5, float("nan"))],
        np.asarray(X, dtype=np.float32),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("shape", ["vector", "column", "list", "series", "frame"])
def test_many_rows_whatever_holds_them(publisher: Publisher, given: Any, shape: str) -> None:
    answer: Any = np.array([0.1, 0.2, 0.3])
    if shape == "column":
        answer = answer[:, None]
    elif shape == "list":
        answer = answer.tolist()
    elif shape != "vector":
        answer = pd.Series(answer) if shape == "series" else pd.DataFrame({"p": answer})
    predict = publisher.watch(lambda batch: answer)
    assert predict(given) is answer
    found = seen(publisher)
    assert [features for features, _ in found] == EXPECTED
    assert [output for _, output in found] == pytest.approx([0.1, 0.2, 0.3])
    assert publisher.invalid == 0


@pytest.mark.parametrize(
    "given",
    [
        X[0], [1.0, 2.0], (1.0, 2.0), X[:1], {"a": 1.0, "b": 2.0}, {"a": np.float32(1), "b": 2},
        pd.Series({"a": 1.0, "b": 2.0}), pd.DataFrame(X[:1], columns=NAMES), Record(1, 2), Data(1, 2),
        Model(a=1, b=2), Struct(1, 2), [{"a": 1, "b": 2}],
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
@pytest.mark.parametrize("answer", [0.5, np.float32(0.5), np.array([0.5]), [0.5], np.array(0.5)])
def test_one_row_whatever_holds_it(publisher: Publisher, given: Any, answer: Any) -> None:
    assert publisher.watch(lambda row: answer)(given) is answer
    assert seen(publisher) == [({"a": 1.0, "b": 2.0}, 0.5)]


def test_a_sparse_matrix(publisher: Publisher) -> None:
    from scipy.sparse import csr_array

    publisher.watch(lambda batch: batch.sum(axis=1))(csr_array([[0.0, 2.0], [3.0, 0.0]]))
    assert seen(publisher) == [({"a": 0.0, "b": 2.0}, 2.0), ({"a": 3.0, "b": 0.0}, 3.0)]


def test_several_outputs(publisher: Publisher) -> None:
    answer = np.arange(6.0).reshape(3, 2)
    publisher.watch(lambda batch: answer)(X)
    assert [output for _, output in seen(publisher)] == answer.tolist()
    publisher.watch(lambda batch: answer, outputs=lambda p: p[:, 1])(X)
    assert [output for _, output in seen(publisher)] == [1.0, 3.0, 5.0]
    publisher.watch(lambda batch: pd.DataFrame(answer, columns=["p", "q"]))(X)
    assert [output for _, output in seen(publisher)][1] == {"p": 2.0, "q": 3.0}
    publisher.watch(lambda row: {"p": np.float64(1), "q": None})(X[0])
    assert [output for _, output in seen(publisher)] == [{"p": 1.0, "q": None}]


def test_torch_tensors_in_and_out(publisher: Publisher) -> None:
    torch = pytest.importorskip("torch")
    layer = torch.nn.Linear(2, 1)
    predict = publisher.watch(layer)
    batch = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    answer = predict(batch)
    assert answer.requires_grad, "it is the layer's own"
    found = seen(publisher)
    assert [features for features, _ in found] == EXPECTED[:2]
    assert [output for _, output in found] == pytest.approx(answer[:, 0].tolist())
    half = publisher.watch(lambda x: x.sum(1))
    half(torch.tensor([[1.0, 2.0]], dtype=torch.bfloat16))
    assert seen(publisher) == [({"a": 1.0, "b": 2.0}, 3.0)]
    by_name = publisher.watch(lambda row: row["a"] + row["b"])
    by_name({"a": torch.tensor(1.0), "b": torch.tensor(2.0)})
    assert seen(publisher) == [({"a": 1.0, "b": 2.0}, 3.0)]


def test_models_of_sklearn_and_xgboost_know_their_names(nowhere: str) -> None:
    import xgboost
    from sklearn.linear_model import LinearRegression

    publisher = Publisher(nowhere, model="m")
    frame = pd.DataFrame(X[:2], columns=NAMES)
    model = LinearRegression().fit(frame, [1.0, 2.0])
    expected = model.predict(frame)
    predict = publisher.watch(model.predict)
    predict(frame)
    with pytest.warns(UserWarning, match="feature names"):
        predict(X[:2])  # sklearn's own warning; the names are the model's
    found = seen(publisher)
    assert [features for features, _ in found] == EXPECTED[:2] * 2
    assert [output for _, output in found] == pytest.approx([*expected, *expected])
    matrix = xgboost.DMatrix(X, feature_names=NAMES)
    booster = xgboost.train({"max_depth": 1}, xgboost.DMatrix(X, [1, 2, 3], feature_names=NAMES), 1)
    answer = publisher.watch(booster.predict)(matrix)
    found = seen(publisher)
    assert [features for features, _ in found] == EXPECTED
    assert [output for _, output in found] == pytest.approx(answer.tolist())
    publisher.close(0.0)


def test_methods_arguments_and_ids(publisher: Publisher) -> None:
    class Service:
        @publisher.watch(features="batch", ids=lambda self, names, batch: names)
        def predict(self, names: list[str], batch: Any) -> Any:
            """Say the sum."""
            return batch.sum(axis=1)

        @publisher.watch
        def plain(self, batch: Any) -> Any:
            return batch.sum(axis=1)

        @classmethod
        @publisher.watch
        def of_class(cls, batch: Any) -> Any:
            return batch.sum(axis=1)

    service = Service()
    service.predict(["x", "y"], X[:2])
    service.predict(names=["z"], batch=X[:1])
    found = take_rows(publisher)
    assert [row["id"] for row in found] == ["x", "y", "z"]
    assert [row["features"] for row in found] == [*EXPECTED[:2], EXPECTED[0]]
    service.plain(X[:1])
    service.plain(batch=X[:1])
    Service.of_class(X[:1])
    assert seen(publisher) == [(EXPECTED[0], 3.0)] * 3
    assert Service.predict.__doc__ == "Say the sum."
    assert list(inspect.signature(Service.predict).parameters) == ["self", "names", "batch"]


async def test_async_functions_and_awaitables(publisher: Publisher) -> None:
    @publisher.watch
    async def predict(batch: Any) -> Any:
        await asyncio.sleep(0)
        return batch.sum(axis=1)

    class Asked:
        async def __call__(self, batch: Any) -> Any:
            return batch.sum(axis=1)

    assert inspect.iscoroutinefunction(predict)
    answers = await asyncio.gather(*(predict(X[place : place + 1]) for place in range(2)))
    assert [float(answer[0]) for answer in answers] == [3.0, 7.0]
    await publisher.watch(Asked())(X[:1])
    await publisher.watch(lambda batch: predict.__wrapped__(batch))(X[:1])  # type: ignore[attr-defined]
    assert seen(publisher) == [
        (EXPECTED[0], 3.0), (EXPECTED[1], 7.0), (EXPECTED[0], 3.0), (EXPECTED[0], 3.0)
    ]  # fmt: skip

    @publisher.watch
    async def fails(batch: Any) -> Any:
        raise ValueError("own")

    with pytest.raises(ValueError, match="own"):
        await fails(X)
    assert publisher.pending == 0


def test_a_function_that_changes_its_argument_publishes_what_it_was_given(
    publisher: Publisher,
) -> None:
    def predict(batch: Any) -> Any:
        total = batch.sum(axis=1)
        batch *= 0
        return total

    publisher.watch(predict)(X[:2].copy())
    frame = pd.DataFrame(X[:2], columns=NAMES)
    publisher.watch(lambda f: f.pop("b"), outputs=lambda p: p.to_numpy())(frame)
    publisher.watch(predict)(np.array([[1.0, 2.0]]))
    assert [features for features, _ in seen(publisher)] == [*EXPECTED[:2] * 2, EXPECTED[0]]


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (object(), 1.0),
        (np.zeros((2, 2, 2)), [1.0, 2.0]),
        (np.zeros((2, 3)), [1.0, 2.0]),
        (X, [1.0, 2.0]),
        (X, ["yes", "no", "yes"]),
        (X, None),
        (X[0], object()),
        ({"a": 1.0, "b": [1.0, 2.0]}, 1.0),
        ({}, 1.0),
        ([], []),
        ("text", 1.0),
        (None, 1.0),
    ],
)
def test_what_is_no_row_is_counted_and_the_caller_notices_nothing(
    publisher: Publisher, given: Any, answer: Any
) -> None:
    assert publisher.watch(lambda x: answer)(given) is answer
    assert publisher.pending == 0
    assert publisher.invalid > 0 or given == []


def test_what_fails_in_the_options_is_counted(publisher: Publisher) -> None:
    def boom(*_: Any) -> Any:
        raise RuntimeError("boom")

    for options in ({"features": boom}, {"outputs": boom}, {"ids": boom}, {"features": "missing"}):
        assert publisher.watch(lambda x: 1.0, **options)(X[:1]) == 1.0
    assert publisher.watch(lambda: 1.0)() == 1.0
    assert (publisher.invalid, publisher.pending) == (5, 0)


def test_strict_raises_for_tests(nowhere: str) -> None:
    publisher = Publisher(nowhere, model="m", strict=True)
    with pytest.raises(RejectedError, match="have no names"):
        publisher.watch(lambda x: x.sum(axis=1))(X)
    assert publisher.invalid == 3
    publisher.close(0.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_children_forked_from_busy_threads_go_on_by_themselves(
    nowhere: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A fork copies locks as other threads hold them: none of these may be waited for in a child."""
    publisher = Publisher(nowhere, model="m", feature_names=NAMES, max_rows=500)
    predict = publisher.watch(lambda row: 1.0)
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            predict([1.0, 2.0])

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        # Both lines that the parent has to log: a handler's file is Python's to fork in order.
        deadline = time.monotonic() + 20
        while len(caplog.records) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        for _ in range(10):
            child = os.fork()
            if child == 0:
                ok = (
                    publisher.pending == 0 and predict([1.0, 2.0]) == 1.0 and publisher.pending == 1
                )
                ok = ok and not publisher.flush(0.01) and not publisher.close(0.01)
                os._exit(0 if ok else 3)
            deadline = time.monotonic() + 20
            while (found := os.waitpid(child, os.WNOHANG)) == (0, 0):
                if time.monotonic() > deadline:
                    os.kill(child, 9)
                    pytest.fail("a child hangs")
                time.sleep(0.01)
            assert os.waitstatus_to_exitcode(found[1]) == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert publisher.dropped > 0
    assert publisher.pending == 500
    publisher.close(0.0)


def test_watching_loads_no_library_of_the_models() -> None:
    code = (
        "import sys; from attributary import PredictionMiddleware, Publisher\n"
        "p = Publisher('127.0.0.1:1', model='m', exit_timeout=0.0)\n"
        "assert p.watch(lambda row: 1.0)({'a': 1}) == 1.0 and p.pending == 1\n"
        "print(' '.join(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"torch", "pandas", "xgboost", "sklearn", "starlette", "fastapi", "pyarrow"}
    # Nor what the other names of the package need: building their messages takes a quarter of the time.
    assert not {"attributary.schemas.explanation", "attributary.schemas.attribution"} & {
        *done.stdout.split()
    }
