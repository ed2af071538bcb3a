"""Event times of every kind against the calendar, and what the rows are told that have none."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from attributary.schemas.errors import ConfigurationError, Reason, RejectedError
from attributary.service.event_times import EventTimes

NOON = datetime(2026, 7, 1, 12, tzinfo=timezone.utc).timestamp()


@pytest.mark.parametrize(
    ("column", "times", "seconds"),
    [
        (pa.array([NOON, NOON + 0.5]), EventTimes(), [NOON, NOON + 0.5]),
        (pa.array([int(NOON) * 1000]), EventTimes("ms"), [NOON]),
        (pa.array([int(NOON) * 10**9]), EventTimes("ns"), [NOON]),
        (pa.array([datetime(2026, 7, 1, 12)]), EventTimes(), [NOON]),
        (pa.array([datetime(2026, 7, 1, 14)]), EventTimes(zone="Europe/Berlin"), [NOON]),
        (pa.array([datetime.fromtimestamp(NOON, timezone(timedelta(hours=9)))],
                  pa.timestamp("us", "Asia/Tokyo")), EventTimes(zone="Europe/Berlin"), [NOON]),
        (pa.array([datetime(2026, 7, 1).date()]), EventTimes(), [NOON - 43_200]),
        (pa.array(["2026-07-01T12:00:00Z", "2026-07-01 14:00:00.25+02:00"]), EventTimes(),
         [NOON, NOON + 0.25]),
        (pa.array(["2026-07-01T14:00:00", "2026-07-01T12:00:00z", "2026-07-01T14:00:00.1234567"]),
         EventTimes(zone="Europe/Berlin"), [NOON, NOON, NOON + 0.123456]),
        (pa.array(["01.07.2026 14:00"]),
         EventTimes(zone="Europe/Berlin", form="%d.%m.%Y %H:%M"), [NOON]),
        (pa.array(["01/Jul/2026:08:00:00 -0400"]), EventTimes(form="%d/%b/%Y:%H:%M:%S %z"), [NOON]),
        (pa.array(["2026-07-01T12:00:00Z"] * 2).dictionary_encode(), EventTimes(), [NOON, NOON]),
        (pa.chunked_array([pa.array([NOON]), pa.array([NOON + 1])]), EventTimes(), [NOON, NOON + 1]),
        # The hour that comes twice: the first time. The one that never comes: just after.
        (pa.array([datetime(2026, 10, 25, 2, 30)]), EventTimes(zone="Europe/Berlin"),
         [datetime(2026, 10, 25, 0, 30, tzinfo=timezone.utc).timestamp()]),
        (pa.array(["2026-10-25T02:30:00"]), EventTimes(zone="Europe/Berlin"),
         [datetime(2026, 10, 25, 0, 30, tzinfo=timezone.utc).timestamp()]),
    ],
    ids=str,
)  # fmt: skip
def test_columns(column: Any, times: EventTimes, seconds: list[float]) -> None:
    found = times.column(column, "at")
    np.testing.assert_allclose(found.seconds, seconds, rtol=0, atol=1e-3)
    assert found.problems == {}
    if pa.types.is_string(column.type):
        for text, second in zip(column.to_pylist(), seconds, strict=True):
            assert times.value(text) == pytest.approx(second, abs=1e-6)


def test_rows_without_a_time_are_told_one_by_one() -> None:
    found = EventTimes().column(pa.array(["2026-07-01", None, "soon", "", "2026-13-01"]), "at")
    assert list(found.problems) == [1, 2, 3, 4]
    assert "'soon' is not ISO 8601" in found.problems[2]
    assert found.problems[1] == found.problems[3]
    assert np.isnan(found.seconds).tolist() == [False, True, True, True, True]
    found = EventTimes(form="%Y").column(pa.array(["2026", "26-01"]), "at")
    assert "'26-01' is not '%Y'" in found.problems[1]
    found = EventTimes().column(pa.array([1.0, None, float("nan"), float("inf")]), "at")
    assert found.problems == dict.fromkeys((1, 2, 3), "the time is missing")


@pytest.mark.parametrize("value", ["soon", True, None, [1], 1.7e12, float("inf")], ids=str)
def test_single_values_that_are_no_times(value: Any) -> None:
    with pytest.raises(RejectedError) as caught:
        EventTimes().value(value)
    assert caught.value.reason == Reason.BAD_TIME


def test_columns_in_another_unit_or_type_and_zones_that_there_are_not() -> None:
    with pytest.raises(ConfigurationError, match="--time-unit ms"):
        EventTimes().column(pa.array([int(NOON) * 1000]), "at")
    with pytest.raises(ConfigurationError, match="--time-column 'at'"):
        EventTimes().column(pa.array([timedelta(1)]), "at")
    for zone in ("Mars/Olympus", "", "../etc/passwd"):
        with pytest.raises(ConfigurationError, match="--time-zone"):
            EventTimes(zone=zone)
