"""Scheduled runs: what is due, who sends it, that it is genuine, and what Prometheus sees of it."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from aiokafka import ConsumerRecord, TopicPartition
from prometheus_client import CollectorRegistry

from attributary.schemas.card import Feature, InformationSchedule, ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.errors import RejectedError
from attributary.schemas.explanation import (
    DependenceChange,
    Explanation,
    McirResult,
    Neighbourhoods,
    UniqueInformation,
)
from attributary.schemas.request import DEADLINE_HEADER, ExplanationRequest, StreamWindow
from attributary.schemas.topics import Topics
from attributary.workers.ondemand import scheduler as scheduler_module
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.final_windows import FinalWindows
from attributary.workers.ondemand.information_gauges import InformationGauges
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.ondemand.options import OnDemandOptions
from attributary.workers.ondemand.schedule import (
    check_scheduled,
    period_ms,
    request_partition,
    scheduled_id,
    scheduled_request,
    tick_of,
)
from attributary.workers.ondemand.scheduled_runs import ScheduledRun, ScheduledRuns
from attributary.workers.ondemand.scheduler import Scheduler
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.outgoing import Outgoing

TOPICS = Topics()
PARTITIONS = 4
PERIOD = 300_000
TICK = 1_700_000_100_000
WINDOW = (TICK - 120_000, TICK - 60_000)
CARD = ModelCard(
    model="churn",
    features=[Feature(name=name) for name in "abc"],
    outputs=["y"],
    samples=100,
    unique_information=InformationSchedule(every_seconds=300, rows=500, parameters={"bootstraps": 9}),
)  # fmt: skip


def scored(feature: str, rank: int | None = 1, **fields: Any) -> UniqueInformation:
    given: dict[str, Any] = {
        "kind": "continuous", "ranked": rank is not None, "score": 0.5, "interval": (0.4, 0.6),
        "stderr": 0.05, "unique": 0.2, "joint": 0.6, "marginal": 0.3, "estimator": "copula",
        "neighbourhood": [] if rank is None else ["b" if feature == "a" else "a"], **fields,
    }  # fmt: skip
    return UniqueInformation(feature=feature, rank=rank, **given)


def result(features: list[UniqueInformation] | None = None, **fields: Any) -> McirResult:
    source = Neighbourhoods(
        origin="found",
        found_on=StreamWindow(start=WINDOW[0], end=WINDOW[1], rows=500),
        screen="pearson",
        threshold=0.6,
        max_candidates=6,
        sizes=[1, 3, 5],
    )
    return McirResult(
        **{
            "outputs": ["y"],
            "observed": True,
            "window": StreamWindow(start=WINDOW[0], end=WINDOW[1], rows=500),
            "rows": 500,
            "rows_left_out": 0,
            "neighbourhoods": source,
            "size": 1,
            "sizes": [],
            "stability": None,
            "features": features or [scored("a"), scored("b", 2), scored("c", None)],
            **fields,
        }
    )


def answer(tick: int = TICK, found: McirResult | None = None, model: str = "churn") -> Explanation:
    return Explanation(
        id=scheduled_id(model, tick), model=model, method="mcir-m", outcome="result",
        result=found or result(), requested_at=tick, computed_at=tick + 1000, seconds=0.5,
    )  # fmt: skip


def run(tick: int = TICK, found: McirResult | None = None, model: str = "churn") -> ScheduledRun:
    made = answer(tick, found, model)
    assert isinstance(made.result, McirResult)
    return ScheduledRun(model, tick, made, made.result)


# The card


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"samples": 0}, "give samples above 0"),
        ({"windows": [{"kind": "lifetime"}]}, "needs a tumbling or hopping window"),
        ({"unique_information": {"every_seconds": 300, "window_seconds": 7}}, "one of \\[60.0\\]"),
        ({"unique_information": {"every_seconds": 0}}, "every_seconds"),
        ({"unique_information": {"every_minutes": 5}}, "every_seconds"),
    ],
)
def test_a_schedule_that_cannot_work_says_why(fields: dict[str, Any], said: str) -> None:
    card = {"model": "m", "samples": 9, "unique_information": {"every_seconds": 300}, **fields}
    with pytest.raises(RejectedError, match=said):
        ModelCard.from_bytes(json.dumps(card).encode())
    assert ModelCard(model="m").unique_information is None


# The request


def test_the_id_is_made_of_model_and_tick_alone() -> None:
    assert scheduled_id("churn", TICK) == f"scheduled|{TICK}|churn"
    assert tick_of(scheduled_id("churn", TICK)) == TICK
    long, other = "m" * 200, "m" * 199 + "n"
    ids = {scheduled_id(name, TICK) for name in (long, other)}
    assert len(ids) == 2
    for one in ids:
        assert tick_of(ExplanationRequest(id=one, model=long, instances=StreamWindow()).id) == TICK
    for wrong in (
        "r-1",
        "scheduled",
        "scheduled|",
        "scheduled|x|m",
        "scheduled|²|m",
        "scheduled|" + "9" * 30,
    ):
        assert tick_of(wrong) is None  # fmt: skip
    schedule = CARD.unique_information
    assert schedule is not None
    assert period_ms(schedule, 60.0) == PERIOD
    assert period_ms(schedule, 900.0) == 900_000


def test_a_scheduled_request_is_what_the_card_asks_for() -> None:
    request = scheduled_request(CARD, TICK, WINDOW, None)
    assert request.instances == StreamWindow(start=WINDOW[0], end=WINDOW[1], rows=500)
    assert (request.parameters, request.background, request.seed) == ({"bootstraps": 9}, None, 0)
    assert check_scheduled(request, CARD, 60.0) == (TICK, PERIOD)
    assert ExplanationRequest.from_bytes(request.to_bytes()) == request
    plain = request.model_copy(update={"id": "r-1"})
    assert check_scheduled(plain, CARD, 60.0) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"id": scheduled_id("other", TICK)},
        {"id": scheduled_id("churn", TICK + 1)},
        {"id": "scheduled|x|churn"},
        {"method": "t-explainer"},
        {"output": "y"},
        {"instances": StreamWindow(rows=501)},
        {"parameters": {"bootstraps": 1000}},
        {"parameters": {"bootstraps": 9, "estimator": "knn"}},
    ],
)
def test_another_request_by_that_id_is_refused(changes: dict[str, Any]) -> None:
    forged = scheduled_request(CARD, TICK, WINDOW, None).model_copy(update=changes)
    with pytest.raises(RequestError, match="scheduled"):
        check_scheduled(forged, CARD, 60.0)
    with pytest.raises(RequestError, match="does not ask for this"):
        check_scheduled(
            scheduled_request(CARD, TICK, WINDOW, None),
            CARD.model_copy(update={"unique_information": None}),
            60.0,
        )


def test_neighbourhoods_of_the_run_before_go_with_it_where_they_fit() -> None:
    request = scheduled_request(CARD, TICK, WINDOW, result())
    assert request.parameters["neighbourhoods"] == {"a": ["b"], "b": ["a"], "c": []}
    assert request.parameters["max_change"] == 0.1
    assert request.background == StreamWindow(start=WINDOW[0], end=WINDOW[1], rows=500)
    assert check_scheduled(request, CARD, 60.0) == (TICK, PERIOD)
    schedule = CARD.unique_information
    assert schedule is not None
    for changes in (
        {"reuse_below": 0.0},
        {"parameters": {"threshold": 0.5}},
        {"parameters": {"sizes": [2]}},
        {"parameters": {"junk": 1}},
        {"output": "z"},
    ):
        card = CARD.model_copy(update={"unique_information": schedule.model_copy(update=changes)})
        assert scheduled_request(card, TICK, WINDOW, result()).background is None, changes


# What the logs say


def record(value: bytes, key: bytes = b"churn") -> ConsumerRecord:
    return ConsumerRecord("attributions", 0, 0, 0, 0, key, value, None, 0, 0, ())


def told(start: int, end: int, *, final: bool = True, kind: str = "tumbling") -> ConsumerRecord:
    window = {"kind": kind, "start": start, "end": end, "seconds": 1.0}
    return record(json.dumps({"schema": "x", "window": window, "final": final}).encode())


def test_the_newest_final_window_of_a_width_is_known() -> None:
    windows = FinalWindows(Connection(), TOPICS)
    assert windows.newest("churn", None) is None
    for one in (
        told(0, 60), told(60, 120), told(120, 180, final=False), told(0, 600, kind="hopping"),
        told(0, 10_000, kind="lifetime"), told(-60, 0), record(b"{"), record(b'{"final": true}'),
    ):  # fmt: skip
        windows.add(one)
    assert windows.newest("churn", 60) == (60, 120)
    assert windows.newest("churn", None) == (0, 600)
    assert windows.newest("churn", 7) is None
    assert windows.newest("other", None) is None


def test_the_newest_run_is_known_whatever_the_order() -> None:
    runs = ScheduledRuns()
    for tick in (TICK, TICK + 2 * PERIOD, TICK + PERIOD):
        found = answer(tick)
        runs.add(found.id.encode(), found.to_bytes())
    again = answer(TICK + 2 * PERIOD, result(rows=7))
    runs.add(again.id.encode(), again.to_bytes())
    failed = answer(TICK + 3 * PERIOD).model_copy(update={"result": None, "outcome": "error"})
    runs.add(failed.id.encode(), failed.to_bytes())
    runs.add(scheduled_id("churn", TICK + 4 * PERIOD).encode(), b"{")
    runs.add(b"r-1", b"{")
    newest = runs.newest("churn")
    assert newest is not None
    assert (newest.tick, newest.result.rows) == (TICK + 2 * PERIOD, 500)


# Who sends what


class Log:
    """Stands for the log of answers: remembers how far back it was asked to look."""

    def __init__(self) -> None:
        self.on_final: Any = None
        self.since: list[tuple[TopicPartition, int]] = []

    async def know_since(self, partition: TopicPartition, time_ms: int) -> None:
        self.since.append((partition, time_ms))


class Sent:
    def __init__(self) -> None:
        self.records: list[Outgoing] = []

    async def send(self, records: list[Outgoing]) -> None:
        self.records += records


class Bench:
    """A scheduler with a clock of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, card: ModelCard = CARD) -> None:
        self.catalogue = ControlCatalogue()
        self.catalogue.add_card(card.model.encode(), card.to_bytes())
        self.catalogue.add_card(b"plain", ModelCard(model="plain").to_bytes())
        self.log, self.sent = Log(), Sent()
        self.registry = CollectorRegistry()
        self.windows = FinalWindows(Connection(), TOPICS)
        self.now = TICK + 1000
        monkeypatch.setattr(scheduler_module.time, "time", lambda: self.now / 1000)
        options: Any = OnDemandOptions()
        log: Any = self.log
        self.scheduler = Scheduler(
            TOPICS, options, self.catalogue, log, self.windows, OnDemandMetrics.build(self.registry)
        )

    def turn(self, *owned: int) -> list[ExplanationRequest]:
        before = len(self.sent.records)
        sent: Any = self.sent
        asyncio.run(self.scheduler.turn(set(owned), PARTITIONS, sent))
        return [ExplanationRequest.from_bytes(one.value) for one in self.sent.records[before:]]

    def answered(self, tick: int, found: McirResult) -> None:
        made = answer(tick, found)
        self.log.on_final(made.id.encode(), made.to_bytes())

    def metric(self, name: str, **labels: str) -> float | None:
        found = {"model": "churn", **labels}
        return self.registry.get_sample_value(f"attributary_unique_{name}", found)


MINE = request_partition("churn", PARTITIONS)


def test_the_owner_of_the_partition_sends_one_request_a_tick(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch)
    assert bench.scheduler.wanted
    assert bench.turn(MINE) == [], "no final window yet"
    bench.windows.add(told(*WINDOW))
    assert bench.turn(*({0, 1, 2, 3} - {MINE})) == []
    (first,) = bench.turn(MINE)
    assert first == scheduled_request(CARD, TICK, WINDOW, None)
    (sent,) = bench.sent.records
    assert (sent.topic, sent.partition, sent.key) == (TOPICS.requests, MINE, first.id.encode())
    assert list(sent.headers) == [(DEADLINE_HEADER, str(TICK + PERIOD).encode())]
    assert bench.log.since[-1] == (TopicPartition(TOPICS.requests, MINE), TICK - 2 * PERIOD)
    bench.now += 200_000
    assert bench.turn(MINE) == []
    bench.answered(TICK, result())
    bench.now = TICK + PERIOD
    assert bench.turn(MINE) == [], "no newer window: nothing new to say"
    later = (WINDOW[1], WINDOW[1] + 60_000)
    bench.windows.add(told(*later))
    (second,) = bench.turn(MINE)
    assert second == scheduled_request(CARD, TICK + PERIOD, later, result())
    assert second.background is not None


def test_the_next_owner_goes_on_from_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.windows.add(told(WINDOW[1], WINDOW[1] + 60_000))
    bench.answered(TICK, result())
    assert bench.turn(MINE) == [], "the tick is answered"
    assert bench.metric("score_ratio", feature="a") == 0.5
    bench.turn()
    assert bench.metric("score_ratio", feature="a") is None, "another worker's now"
    bench.turn(MINE)
    assert bench.metric("score_ratio", feature="a") == 0.5
    bench.catalogue.add_card(b"churn", None)
    bench.now += PERIOD
    assert bench.turn(MINE) == []
    assert bench.metric("rows") is None
    assert not bench.scheduler.wanted


def test_neighbourhoods_too_long_for_a_request_are_found_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch)
    long = [scored(f"{k}" * 150, k, neighbourhood=["b" * 200] * 50) for k in range(1, 120)]
    bench.answered(TICK, result(long))
    bench.now = TICK + PERIOD
    bench.windows.add(told(WINDOW[1], WINDOW[1] + 60_000))
    (request,) = bench.turn(MINE)
    assert (request.background, request.parameters) == (None, {"bootstraps": 9})


# What Prometheus sees


def test_a_run_is_shown_within_its_budget_and_without_stale_series() -> None:
    registry = CollectorRegistry()
    # Three features of nine gauges, and eight of the run.
    gauges = InformationGauges(OnDemandMetrics.build(registry), most=50, budget=27 + 8)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"attributary_unique_{name}", {"model": "churn", **labels})

    doubtful = scored("c", None, marginal=0.01, flags=["no neighbourhood", "small denominator"])
    change = DependenceChange(largest=0.2, pair=("a", "b"), limit=0.1, rows_before=500)
    source = result().neighbourhoods
    assert source is not None
    source = source.model_copy(update={"origin": "reused", "change": change})
    features = [scored("a"), scored("b", 2, interval=None), doubtful, scored("d", None)]
    shown = run(found=result(features, neighbourhoods=source))
    gauges.show(shown)
    assert value("score_ratio", feature="a") == 0.5
    assert value("score_low_ratio", feature="a") == 0.4
    assert value("score_high_ratio", feature="a") == 0.6
    assert value("score_stderr_ratio", feature="a") == 0.05
    assert value("rank", feature="b") == 2
    assert value("information_nats", feature="a") == 0.2
    assert value("joint_nats", feature="a") == 0.6
    assert value("score_low_ratio", feature="b") is None
    assert value("score_ratio", feature="c") is None, "not ranked"
    assert value("rank", feature="c") is None
    assert (value("marginal_nats", feature="c"), value("flags", feature="c")) == (0.01, 2)
    assert value("marginal_nats", feature="d") is None, "27 series are three features"
    assert value("features_not_exported") == 1
    assert (value("neighbourhoods_reused"), value("dependence_change_ratio")) == (1, 0.2)
    assert value("window_end_timestamp_seconds") == WINDOW[1] / 1000
    assert value("timestamp_seconds") == TICK / 1000 + 1
    assert (value("seconds"), value("rows")) == (0.5, 500)
    assert value("kendall_ratio") is None
    gauges.show(run(TICK + PERIOD, result([scored("b"), scored("d", 2)])))
    assert value("score_ratio", feature="a") is None
    assert value("score_ratio", feature="d") == 0.5
    assert value("dependence_change_ratio") is None
    gauges.keep({"churn"})
    assert value("rows") == 500
    gauges.keep(())
    left = {one.name for family in registry.collect() for one in family.samples}
    assert not [name for name in left if "_unique_" in name]


def test_series_of_many_models_stay_within_each_models_budget() -> None:
    registry = CollectorRegistry()
    gauges = InformationGauges(OnDemandMetrics.build(registry), most=5, budget=10_000)
    names = [f"f{k}" for k in np.arange(30)]
    for model in ("m", "n"):
        found = result([scored(name, place + 1) for place, name in enumerate(names)])
        gauges.show(replace(run(found=found, model=model)))
    scores = [
        one.labels["model"]
        for family in registry.collect()
        for one in family.samples
        if one.name == "attributary_unique_score_ratio"
    ]
    assert sorted(scores) == ["m"] * 5 + ["n"] * 5
