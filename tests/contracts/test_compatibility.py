"""What every release wrote is read today to the same meaning: see docs/contracts/README.md."""

from __future__ import annotations

import json
from typing import Any

import pytest
from contract_samples import SAMPLES, Sample, merged, read, run

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.card import ModelCard
from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.explanation import Explanation, Progress
from attributary.schemas.grid import GridRecord
from attributary.schemas.manifest import Manifest
from attributary.schemas.message import Message
from attributary.schemas.request import Cancellation, ExplanationRequest
from attributary.schemas.retry_marker import RetryMarker
from attributary.schemas.unique_information import UniqueInformationRun

READERS: dict[str, type[Message]] = {
    kind.SCHEMA: kind
    for kind in (
        ModelCard, GridRecord, Manifest, WindowAttribution, WindowDrift, ExplanationRequest,
        Cancellation, Progress, Explanation, RetryMarker, UniqueInformationRun,
    )
}  # fmt: skip
Log = dict[str, list[Sample]]


@pytest.fixture(params=sorted(path.name for path in SAMPLES.iterdir()))
def log(request: pytest.FixtureRequest) -> Log:
    """What one release wrote, by topic."""
    return read(request.param)


def assert_same(found: Any, sample: Any, place: str = "message") -> None:
    """All that the sample says is in what was found; more is allowed, numbers differ by rounding alone."""
    if isinstance(sample, dict):
        assert set(sample) <= set(found), place
        for name, value in sample.items():
            assert_same(found[name], value, f"{place}.{name}")
    elif isinstance(sample, list):
        assert len(found) == len(sample), place
        for index, value in enumerate(sample):
            assert_same(found[index], value, f"{place}[{index}]")
    elif isinstance(sample, float):
        assert found == pytest.approx(sample, rel=1e-9, abs=1e-9), place
    else:
        assert found == sample, place


def test_every_json_message_is_read_and_says_all_that_it_said(log: Log) -> None:
    seen = set()
    for topic, samples in log.items():
        for sample in samples:
            told = json.loads(sample.line()).get("json")
            if (
                topic == "rows"
                or told is None
                or (topic == "dead-letters" and "schema" not in told)
            ):
                continue
            message = READERS[told["schema"]].from_bytes(sample.value)
            assert_same(json.loads(message.to_bytes()), told)
            seen.add(told["schema"].partition("/")[0])
    assert seen == {schema.partition("/")[0] for schema in READERS}


def test_a_field_that_is_gone_or_means_something_else_is_seen(log: Log) -> None:
    told = json.loads(log["attributions"][0].value)
    renamed = json.loads(json.dumps(told).replace('"rank"', '"place"'))
    moved = json.loads(json.dumps(told).replace('"direction": 1', '"direction": -1'))
    for changed in (renamed, moved):
        with pytest.raises(AssertionError):
            assert_same(changed, told)


def test_rows_count_as_they_did(log: Log) -> None:
    done = run(log["models"][0], log["rows"])
    assert_results(done.results, log)
    assert [letter.headers for letter in done.letters] == [
        letter.headers for letter in log["dead-letters"] if not letter.key
    ]


def test_sketches_are_merged_to_the_same_results(log: Log) -> None:
    assert_results(merged(log["models"][0], log["grids"], log["sketches"]), log)


def assert_results(results: list[WindowAttribution | WindowDrift], log: Log) -> None:
    for kind, topic in ((WindowAttribution, "attributions"), (WindowDrift, "drift")):
        found = [json.loads(one.to_bytes()) for one in results if isinstance(one, kind)]
        told = [json.loads(sample.value) for sample in log[topic]]
        assert_same(found, [one for one in told if one["schema"] == kind.SCHEMA], topic)


def test_dead_letters_say_where_they_come_from(log: Log) -> None:
    letter = DeadLetter.from_headers(log["dead-letters"][0].headers)
    assert (letter.topic, letter.partition, letter.offset) == ("attributary.rows", 0, 19)
    assert (letter.reason, letter.rows, letter.count) == ("wrong_type", (0,), 1)
