"""The endless flights: their order and ids, their reference, and what is said of failures."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from command import error_line, run

from attributary.schemas.arrow import decode_arrow_rows
from attributary.schemas.card import ModelCard
from attributary.schemas.errors import BrokerError
from attributary.service.demo.columns import feature_columns, with_baseline
from attributary.service.demo.dataset import Dataset, Rows
from attributary.service.demo.flights import flights, live_flights
from attributary.service.demo.live import Live, promise
from attributary.service.demo.stream import RowStream

EVERY = 16


@pytest.fixture(scope="module")
def year() -> Dataset:
    return live_flights(every=EVERY)


def test_the_year_begins_in_march_and_ends_with_the_training_months(year: Dataset) -> None:
    once = flights(every=EVERY)
    assert year.rows.ids[: len(once.rows)].tolist() == once.rows.ids.tolist()
    winter = year.rows.slice(len(once.rows), len(year.rows))
    assert winter.times.max() < once.rows.times.min()
    assert np.all(np.diff(winter.times) >= 0)
    assert len(year.rows) == pytest.approx(336_776 / EVERY, rel=0.001)


def test_the_reference_is_what_the_training_months_hold(year: Dataset) -> None:
    trained = len(year.rows) - len(flights(every=EVERY).rows)
    winter = year.rows.slice(len(year.rows) - trained, len(year.rows))
    baseline = ModelCard.from_bytes(year.card.to_bytes()).baseline
    assert baseline is not None
    assert baseline.rows == trained
    assert baseline.reference is not None
    at = [feature.name for feature in year.card.features].index("temp")
    digest = baseline.reference.x_digests[at]
    temperatures = winter.features["temp"]
    known = temperatures[np.isfinite(temperatures)]
    assert (digest.low, digest.high) == (known.min(), known.max())
    assert (digest.values, digest.missing) == (len(known), trained - len(known))
    assert np.average(digest.means, weights=digest.weights) == pytest.approx(known.mean())
    assert baseline.x_edges[at] == with_baseline(year.card, winter).baseline.x_edges[at]  # type: ignore[union-attr]
    columns = sum(feature_columns(feature, winter).shape[1] for feature in year.card.features)
    assert len(baseline.reference.scores[0]) == columns


class _Sink:
    """What a publisher is given."""

    pending = 0

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.times: list[float] = []

    def publish_message(self, value: bytes, rows: int, content_type: str) -> bool:
        found = decode_arrow_rows(value)
        assert found.ids is not None
        assert found.time is not None
        self.ids += [name.decode() for name in found.ids]
        self.times += [time / 1000 for time in found.time.tolist()]
        return True

    def publish_batch(self, *, ids: list[str], times: list[float], **_: Any) -> int:
        self.ids += ids
        self.times += times
        return len(ids)


async def test_rows_go_round_with_the_present_as_their_time_and_an_id_of_their_own(
    year: Dataset,
) -> None:
    few = replace(year, rows=year.rows.slice(0, 30))
    sink: Any = _Sink()
    stream = RowStream(few, sink, rate=200.0, live=True)
    began = time.time()
    await stream.run(lambda: stream.rows >= 100, None)
    assert stream.rows == len(sink.ids) == len(set(sink.ids))
    assert [name.partition("@")[0] for name in sink.ids] == (4 * few.rows.ids.tolist())[
        : stream.rows
    ]
    assert np.all(np.diff(sink.times) >= 0)
    assert began - 0.01 <= sink.times[0]
    assert sink.times[-1] <= time.time()


def test_a_request_names_a_row_as_it_was_sent_missing_values_as_null(year: Dataset) -> None:
    live = Live(year, year.card, rate=1.0, stopping=lambda: False, say=print)
    at = int(np.flatnonzero(np.isnan(year.rows.features["wind_gust"]))[0])
    features = live.instance(len(year.rows) + at).features
    assert features["wind_gust"] is None
    assert features["distance"] == year.rows.features["distance"][at]
    assert features["carrier"] == year.rows.features["carrier"][at]
    assert set(features) == {feature.name for feature in year.card.features}


class _Explainer:
    """Answers with one outcome after the other."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)

    async def arequest(self, *_: Any, **__: Any) -> Any:
        found = self._answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


def test_what_is_not_answered_is_counted_and_said_once(year: Dataset) -> None:
    said: list[str] = []
    live = Live(year, year.card, rate=1.0, stopping=lambda: False, say=said.append)
    good = SimpleNamespace(outcome="result", error=None)
    late = SimpleNamespace(outcome="expired", error=None)
    explainer: Any = _Explainer(good, late, BrokerError("away"), good, late)
    for _ in range(5):
        asyncio.run(live._one(explainer, live.instance(0)))
    assert (live.answered, live.unanswered) == (2, 3)
    assert said == ["a request was not answered: expired"] * 2


def test_what_it_does_is_said_with_numbers(year: Dataset) -> None:
    lines = promise(year, len(year.rows) / 1800, explained=True)
    assert "a day of flights takes 4.9 s, the year 30 min" in lines[1]
    assert lines[2] == "asking for an explanation every 3 s"
    assert "--models" in promise(year, 1.0, explained=False)[2]


@pytest.mark.parametrize(
    "arguments", [["--live"], ["--live", "--publish-only", "--dataset", "digits"]]
)
def test_live_goes_with_publish_only_and_the_flights(arguments: list[str]) -> None:
    assert "--live goes with --publish-only and the flights" in error_line(run("demo", *arguments))


def test_rows_at_a_moment_keep_their_values(year: Dataset) -> None:
    rows: Rows = year.rows.slice(0, 3)
    found = rows.at(1234)
    assert found.times.tolist() == [1234] * 3
    assert found.ids.tolist() == [f"{name}@1234" for name in rows.ids]
    assert found.outputs is rows.outputs
