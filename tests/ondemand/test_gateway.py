"""Model calls of several requests in one batch: the same numbers, and each fails for itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import numpy.typing as npt
import pytest
from handles import FunctionHandle, Held

from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand import gateway as gateway_module
from attributary.workers.ondemand.errors import CancelledRequestError, RequestError
from attributary.workers.ondemand.gateway import Gateway

Floats = npt.NDArray[np.float64]


def nothing() -> None:
    return None


def network(X: Floats) -> Floats:
    """A float32 network: its sums depend on the shape of the batch."""
    rng = np.random.default_rng(5)
    W = rng.normal(size=(X.shape[1], 64)).astype(np.float32)
    V = rng.normal(size=(64, 2)).astype(np.float32)
    return (np.tanh(X.astype(np.float32) @ W) @ V).astype(np.float64)


def opened(handle: FunctionHandle, **options: int) -> Gateway:
    return Gateway(lambda: handle, **{"batch_rows": 32, "tree_batch_rows": 1000, **options})


def busy_with(
    gateway: Gateway, held: Held, first: Floats, others: Sequence[Floats], pool: ThreadPoolExecutor
) -> list[Future[Floats]]:
    """Ask for ``first``, and for the others while the model is busy with it; then let it go."""
    futures = [pool.submit(gateway.evaluate, first, nothing)]
    assert held.entered.wait(5)
    for count, X in enumerate(others, 1):
        futures.append(pool.submit(gateway.evaluate, X, nothing))
        deadline = time.monotonic() + 5
        while len(gateway._waiting) < count and time.monotonic() < deadline:
            time.sleep(0.001)
    held.let_go.set()
    return futures


@pytest.fixture
def pool() -> ThreadPoolExecutor:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def test_calls_that_wait_are_one_batch(pool: ThreadPoolExecutor) -> None:
    held = Held(lambda X: X.sum(axis=1))
    handle = FunctionHandle(held, piecewise_constant=True)
    served: list[tuple[int, int]] = []
    gateway = Gateway(
        lambda: handle,
        batch_rows=32,
        tree_batch_rows=1000,
        evaluated=lambda rows, calls: served.append((rows, calls)),
    )
    parts = [np.full((n, 3), float(n)) for n in (2, 3, 5, 7)]
    futures = busy_with(gateway, held, parts[0], parts[1:], pool)
    for part, future in zip(parts, futures, strict=True):
        assert np.array_equal(future.result(5), part.sum(axis=1)[:, None])
    assert [len(batch) for batch in handle.batches] == [2, 15]
    assert served == [(2, 1), (15, 3)]
    gateway.close()


def test_a_batch_takes_no_more_rows_than_it_may(pool: ThreadPoolExecutor) -> None:
    held = Held(lambda X: X[:, 0])
    handle = FunctionHandle(held, piecewise_constant=True)
    gateway = opened(handle, tree_batch_rows=10)
    parts = [np.arange(n, dtype=float)[:, None] for n in (1, 6, 6, 25)]
    futures = busy_with(gateway, held, parts[0], parts[1:], pool)
    for part, future in zip(parts, futures, strict=True):
        assert np.array_equal(future.result(5), part)
    assert [len(batch) for batch in handle.batches] == [1, 6, 6, 10, 10, 5]
    gateway.close()


@pytest.mark.parametrize("seed", range(3))
def test_an_answer_does_not_depend_on_who_else_asks(pool: ThreadPoolExecutor, seed: int) -> None:
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(n, 20)) for n in (1, 3, 17, 40, 64)]
    alone = []
    gateway = opened(FunctionHandle(network))
    for part in parts:
        alone.append(gateway.evaluate(part, nothing))
    gateway.close()
    held = Held(network)
    gateway = opened(FunctionHandle(held))
    futures = busy_with(gateway, held, parts[0], parts[:0:-1], pool)
    together = [futures[0].result(5), *(future.result(5) for future in futures[:0:-1])]
    gateway.close()
    for one, other in zip(alone, together, strict=True):
        assert np.array_equal(one, other), "to the last bit"
    # That is what the filled batches are for: of other shapes the same rows give other sums.
    assert np.allclose(alone[3], network(parts[3]), atol=1e-4)


def test_a_smooth_model_always_gets_the_same_number_of_rows() -> None:
    handle = FunctionHandle(network)
    gateway = opened(handle)
    for rows in (1, 31, 32, 33, 70):
        X = np.random.default_rng(rows).normal(size=(rows, 4))
        assert gateway.evaluate(X, nothing).shape == (rows, 2)
    assert {len(batch) for batch in handle.batches} == {32}
    gateway.close()


def test_only_the_rows_to_blame_fail(pool: ThreadPoolExecutor) -> None:
    def picky(X: Floats) -> Floats:
        if (X < 0).any():
            raise ZeroDivisionError("negative")
        return X[:, 0]

    held = Held(picky)
    gateway = opened(FunctionHandle(held, piecewise_constant=True))
    parts = [np.full((2, 1), value) for value in (1.0, 2.0, -3.0, 4.0)]
    futures = busy_with(gateway, held, parts[0], parts[1:], pool)
    for place in (0, 1, 3):
        assert np.array_equal(futures[place].result(5), parts[place])
    with pytest.raises(RequestError, match="negative") as caught:
        futures[2].result(5)
    assert caught.value.code == ErrorCode.MODEL_FAILED
    gateway.close()


def test_rows_of_another_width_are_another_batch(pool: ThreadPoolExecutor) -> None:
    held = Held(lambda X: X.sum(axis=1))
    gateway = opened(FunctionHandle(held, piecewise_constant=True))
    parts = [np.ones((2, width)) for width in (1, 2, 3)]
    futures = busy_with(gateway, held, parts[0], parts[1:], pool)
    assert [future.result(5)[0, 0] for future in futures] == [1.0, 2.0, 3.0]
    gateway.close()


def test_a_model_whose_process_died_is_opened_again() -> None:
    handles: list[FunctionHandle] = []

    def open_model() -> FunctionHandle:
        handles.append(FunctionHandle(lambda X: X[:, 0]))
        return handles[-1]

    gateway = Gateway(open_model, batch_rows=4, tree_batch_rows=4)
    gateway.evaluate(np.ones((1, 1)), nothing)
    handles[0].alive = False
    assert gateway.evaluate(np.full((1, 1), 7.0), nothing)[0, 0] == 7.0
    assert len(handles) == 2
    assert handles[0].closed.is_set()
    gateway.close()


def test_whoever_gives_up_leaves_the_others_their_model(
    pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_module, "_ABANDONED_SECONDS", 0.2)
    handles: list[FunctionHandle] = []
    entered = threading.Event()

    def hang(X: Floats) -> Floats:
        entered.set()
        handles[0].closed.wait(10)  # as a process that is killed ends its call
        raise ZeroDivisionError("killed")

    def open_model() -> FunctionHandle:
        handles.append(FunctionHandle(hang if not handles else lambda X: X[:, 0]))
        return handles[-1]

    gateway = Gateway(open_model, batch_rows=4, tree_batch_rows=4)
    cancelled = threading.Event()

    def check() -> None:
        if cancelled.is_set():
            raise CancelledRequestError("taken back")

    first = pool.submit(gateway.evaluate, np.ones((1, 1)), check)
    assert entered.wait(5)
    second = pool.submit(gateway.evaluate, np.full((1, 1), 9.0), nothing)
    cancelled.set()
    with pytest.raises(CancelledRequestError):
        first.result(5)
    assert second.result(5)[0, 0] == 9.0, "on a new process"
    assert len(handles) == 2
    gateway.close()


def test_what_waits_when_the_model_is_closed_hears_of_it(pool: ThreadPoolExecutor) -> None:
    handle = FunctionHandle(lambda X: X[:, 0])
    entered = threading.Event()

    def hang(X: Floats) -> Floats:
        entered.set()
        handle.closed.wait(10)
        raise ZeroDivisionError("killed")

    handle._function = hang
    gateway = opened(handle)
    futures = [pool.submit(gateway.evaluate, np.ones((1, 1)), nothing)]
    assert entered.wait(5)
    futures.append(pool.submit(gateway.evaluate, np.ones((1, 1)), nothing))
    gateway.close()
    for future in futures:
        with pytest.raises(RequestError):
            future.result(5)
    with pytest.raises(RequestError, match="closed"):
        gateway.evaluate(np.ones((1, 1)), nothing)


def test_an_error_that_nobody_foresaw_reaches_whoever_waits() -> None:
    def odd(X: Floats) -> Floats:
        raise KeyError("odd")

    gateway = opened(FunctionHandle(odd))
    check: Callable[[], None] = nothing
    with pytest.raises(RequestError, match="odd") as caught:
        gateway.evaluate(np.ones((1, 1)), check)
    assert caught.value.code == ErrorCode.INTERNAL
    with pytest.raises(RequestError, match="odd"):
        gateway.evaluate(np.ones((1, 1)), check)
    gateway.close()
