"""How busy devices are, and what of their memory is in use."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from handles import FunctionHandle, Held
from prometheus_client import CollectorRegistry

from attributary.schemas.card import Artefact, ModelCard
from attributary.workers.ondemand import busy_seconds
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.ondemand.model_cache import ModelCache
from attributary.workers.ondemand.options import OnDemandOptions


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(busy_seconds, "monotonic", made)
    return made


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> OnDemandMetrics:
    return OnDemandMetrics.build(registry)


def busy(registry: CollectorRegistry, device: str = "cpu") -> float | None:
    name = "attributary_ondemand_device_busy_seconds_total"
    return registry.get_sample_value(name, {"device": device})


def test_calls_at_one_time_count_once(
    registry: CollectorRegistry, metrics: OnDemandMetrics, clock: Clock
) -> None:
    assert busy(registry) is None
    first, second = metrics.device_busy.call("cpu"), metrics.device_busy.call("cpu")
    clock.now += 5  # idle
    with first:
        clock.now += 1
        with second:
            clock.now += 2
        clock.now += 4
    clock.now += 8  # idle
    assert busy(registry) == 7.0
    with metrics.device_busy.call("cpu"):
        clock.now += 1
    assert busy(registry) == 8.0


def test_devices_count_by_themselves(
    registry: CollectorRegistry, metrics: OnDemandMetrics, clock: Clock
) -> None:
    with metrics.device_busy.call("cpu"):
        clock.now += 1
        with metrics.device_busy.call("cuda:0"):
            clock.now += 2
    assert (busy(registry), busy(registry, "cuda:0")) == (3.0, 2.0)


def test_a_call_counts_while_it_lasts_also_one_that_fails(
    registry: CollectorRegistry, metrics: OnDemandMetrics, clock: Clock
) -> None:
    """Else the rate would be 0 for a minute, and then far above 1."""

    def fail() -> None:
        with metrics.device_busy.call("cpu"):
            for second in (1.0, 2.0, 3.0):
                clock.now += 1
                assert busy(registry) == second
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    clock.now += 1
    assert busy(registry) == 3.0


def card(name: str) -> ModelCard:
    return ModelCard(model=name, artefact=Artefact(uri=f"/{name}.ubj", sha256="0" * 64))


@pytest.fixture
def handles() -> dict[str, FunctionHandle]:
    return {name: FunctionHandle(lambda X: X[:, 0]) for name in ("a", "b", "c")}


@pytest.fixture
def cache(handles: dict[str, FunctionHandle], metrics: OnDemandMetrics) -> Iterator[ModelCache]:
    made = ModelCache(lambda of: handles[of.model], OnDemandOptions(models=2), metrics)
    yield made
    made.close()


def ask(cache: ModelCache, name: str) -> None:
    with cache.use(card(name)) as gateway:
        gateway.evaluate(np.ones((1, 1)), lambda: None)


def test_two_models_that_compute_at_one_time_are_one_busy_device(
    cache: ModelCache, handles: dict[str, FunctionHandle], registry: CollectorRegistry, clock: Clock
) -> None:
    held = {name: Held(lambda X: X[:, 0]) for name in ("a", "b")}
    asking = []
    for name, function in held.items():
        handles[name]._function = function
        asking.append(threading.Thread(target=ask, args=(cache, name)))
        asking[-1].start()
        assert function.entered.wait(5)
    clock.now += 10
    assert busy(registry) == 10.0
    for function in held.values():
        function.let_go.set()
    for thread in asking:
        thread.join()
    clock.now += 10
    assert busy(registry) == 10.0


def test_derivatives_and_measurements_count(
    cache: ModelCache, handles: dict[str, FunctionHandle], registry: CollectorRegistry, clock: Clock
) -> None:
    def differentiate(X: np.ndarray) -> np.ndarray:
        clock.now += 1
        return X[:, None, :]

    def measure(x: np.ndarray) -> None:
        clock.now += 1

    handle = handles["a"]
    handle.gradient, handle.measure = differentiate, measure
    with cache.use(card("a")) as gateway:
        gateway.differentiate(np.ones((1, 1)))
        assert busy(registry) == 1.0
        gateway.evaluate(np.ones((1, 1)), lambda: None)
    assert busy(registry) == 2.0


def test_main_memory_is_that_of_the_processes(
    cache: ModelCache, handles: dict[str, FunctionHandle]
) -> None:
    assert cache.memory("cpu") == 0
    handles["a"].memory, handles["b"].memory, handles["c"].memory = 100, 20, 3
    handles["b"].device = "cuda:0"
    for name, expected in (("a", 100), ("b", 120), ("c", 23)):
        ask(cache, name)
        assert cache.memory("cpu") == expected
    cache.close()
    assert cache.memory("cpu") == 0


def test_a_devices_memory_is_all_that_is_in_use_there(
    cache: ModelCache, handles: dict[str, FunctionHandle], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        handles[name].device, handles[name].memory = "cuda:0", 500
    assert cache.memory("cuda:0") == 0
    monkeypatch.setattr(handles["a"], "device_memory", lambda: None)
    ask(cache, "a")
    assert math.isnan(cache.memory("cuda:0")), (
        "busy since it is open, or of a format that cannot tell"
    )
    ask(cache, "b")
    assert cache.memory("cuda:0") == 500
    monkeypatch.setattr(handles["b"], "device_memory", lambda: None)
    assert cache.memory("cuda:0") == 500, "the last one known"
    cache.close()
    assert cache.memory("cuda:0") == 0


def test_torch_says_what_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from attributary.workers.ondemand.loaders.torch_module import CudaMeter

    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3 + device.index, 10))
    assert CudaMeter(torch.device("cuda:1")).used() == 6
