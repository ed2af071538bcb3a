"""Models held open: shared, at most so many, opened again after an error."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from handles import FunctionHandle
from prometheus_client import CollectorRegistry

from attributary.schemas.card import Artefact, ModelCard
from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.ondemand.model_cache import ModelCache
from attributary.workers.ondemand.options import OnDemandOptions


class Opener:
    """Opens models that return their number, and remembers them."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.handles: dict[str, FunctionHandle] = {}
        self.failing = False

    def __call__(self, card: ModelCard) -> FunctionHandle:
        if self.failing:
            raise RequestError(ErrorCode.MODEL_NOT_LOADABLE, "no")
        self.opened.append(card.model)
        self.handles[card.model] = FunctionHandle(lambda X: np.full(len(X), float(card.model)))
        return self.handles[card.model]


def card(number: int, sha: str = "0") -> ModelCard:
    return ModelCard(
        model=str(number), artefact=Artefact(uri=f"/models/{number}.ubj", sha256=sha * 64)
    )


def ask(cache: ModelCache, of: ModelCard) -> float:
    with cache.use(of) as gateway:
        return float(gateway.evaluate(np.ones((1, 1)), lambda: None)[0, 0])


@pytest.fixture
def opener() -> Opener:
    return Opener()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def cache(opener: Opener, registry: CollectorRegistry) -> ModelCache:
    made = ModelCache(opener, OnDemandOptions(models=2), OnDemandMetrics.build(registry))
    yield made
    made.close()


def test_a_model_is_opened_once(cache: ModelCache, opener: Opener) -> None:
    assert [ask(cache, card(n)) for n in (1, 2, 1, 2)] == [1, 2, 1, 2]
    assert opener.opened == ["1", "2"]


def test_another_sha256_is_another_model(cache: ModelCache, opener: Opener) -> None:
    ask(cache, card(1))
    ask(cache, card(1, sha="a"))
    assert opener.opened == ["1", "1"]


def test_the_least_recent_one_closes(
    cache: ModelCache, opener: Opener, registry: CollectorRegistry
) -> None:
    for number in (1, 2, 1, 3):
        ask(cache, card(number))
    assert [opener.handles[name].alive for name in "123"] == [True, False, True]
    assert registry.get_sample_value("attributary_ondemand_models_open") == 2
    assert registry.get_sample_value("attributary_ondemand_model_evictions_total") == 1
    ask(cache, card(2))
    assert opener.opened == ["1", "2", "3", "2"]


def test_a_model_in_use_stays_open(cache: ModelCache, opener: Opener) -> None:
    with cache.use(card(1)), cache.use(card(2)), cache.use(card(3)):
        assert all(handle.alive for handle in opener.handles.values())
    ask(cache, card(4))
    assert sum(handle.alive for handle in opener.handles.values()) == 2


def test_what_cannot_be_opened_is_tried_again(
    cache: ModelCache, opener: Opener, registry: CollectorRegistry
) -> None:
    opener.failing = True
    with pytest.raises(RequestError, match="no"), cache.use(card(1)):
        pass
    opener.failing = False
    assert ask(cache, card(1)) == 1.0
    labels = {"model": "1", "outcome": "model_not_loadable"}
    assert registry.get_sample_value("attributary_ondemand_model_loads_total", labels) == 1


def test_many_that_want_one_model_open_it_once(cache: ModelCache, opener: Opener) -> None:
    barrier = threading.Barrier(8)

    def work(_: int) -> float:
        barrier.wait(5)
        return ask(cache, card(1))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == [1.0] * 8
    assert opener.opened == ["1"]
