"""How the doctor judges what it finds: topics, clocks, groups, books, snapshots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attributary.schemas.card import Hopping, ModelCard
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.service.accounting import ManifestFold
from attributary.service.doctor.access import clock_finding
from attributary.service.doctor.broker import versions
from attributary.service.doctor.counted import Books, check_accounting, check_lag
from attributary.service.doctor.finding import Finding, fail
from attributary.service.doctor.groups import GroupState, check_groups
from attributary.service.doctor.models import check_models
from attributary.service.doctor.report import as_text, summary
from attributary.service.doctor.results import snapshot_finding
from attributary.service.doctor.topic_settings import TopicState, check_topics
from attributary.service.settings import Settings
from attributary.service.topics import topic_specs
from attributary.workers.stream.catalogue import ControlCatalogue

SETTINGS = Settings()
HOUR = 3_600_000


def topics(**changed: TopicState) -> dict[str, TopicState]:
    """Return topics as they should be, but for those of some roles."""
    return {
        spec.name: changed.get(spec.role, TopicState(spec.partitions, 1, 0, spec.configs))
        for spec in topic_specs(SETTINGS.topics, SETTINGS.layout)
    }


def good(role: str) -> TopicState:
    return topics()[getattr(SETTINGS.topics, role)]


def configured(role: str, **configs: str) -> TopicState:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return replace(good(role), configs={**good(role).configs, **named})


def levels(findings: list[Finding]) -> list[str]:
    return [found.level for found in findings]


def test_topics_as_they_are_created_are_well_and_what_is_not_told_is_not_judged() -> None:
    assert levels(check_topics(SETTINGS, topics(), 1)) == ["ok"]
    untold = {name: replace(state, configs={}) for name, state in topics().items()}
    assert levels(check_topics(SETTINGS, untold, 1)) == ["ok"]


@pytest.mark.parametrize(
    ("role", "state", "level", "says"),
    [
        ("models", configured("models", cleanup_policy="delete"), "fail", "needs compact"),
        ("grids", configured("grids", cleanup_policy="compact"), "fail", "needs delete"),
        ("grids", configured("grids", retention_ms="1000"), "fail", "needs -1"),
        ("sketches", configured("sketches", max_message_bytes="1048588"), "fail",
        "max.message.bytes=1048588"),
        ("drift", configured("drift", max_message_bytes="1048588"), "warn", "max.message.bytes=1048588"),
        ("rows", configured("rows", message_timestamp_type="CreateTime"), "fail", "needs LogAppendTime"),
        ("rows", configured("rows", retention_ms="1000"), "warn", "retention.ms=1000"),
        ("rows", replace(good("rows"), leaderless=1), "fail", "1 of 4 partitions have no leader"),
        ("rows", replace(good("rows"), partitions=2), "warn", "has 2 partitions"),
        ("grids", replace(good("grids"), partitions=2), "fail", "first grid in the log"),
        ("snapshots", replace(good("snapshots"), partitions=1), "fail", "fewer than the 4"),
    ],
)  # fmt: skip
def test_each_wrong_setting_is_found(role: str, state: TopicState, level: str, says: str) -> None:
    found = check_topics(SETTINGS, topics(**{role: state}), 1)
    hit = next(each for each in found if says in each.message)
    assert hit.level == level
    assert hit.fix


def test_more_than_is_needed_is_well_and_one_copy_on_many_brokers_is_not() -> None:
    generous = {
        "rows": configured("rows", retention_ms="-1", max_message_bytes="99999999"),
        "sketches": configured("sketches", cleanup_policy="delete,compact"),
    }
    assert levels(check_topics(SETTINGS, topics(**generous), 1)) == ["ok"]
    assert set(levels(check_topics(SETTINGS, topics(), 3))) == {"warn"}


def test_the_clock_is_judged_by_when_the_broker_can_have_said_it() -> None:
    assert clock_finding(1_000.0, 990.0, 1_010.0).level == "ok"
    assert clock_finding(999_000.0, 990_000.0, 990_100.0).level == "warn"
    behind = clock_finding(100_000.0, 1_000.0, 1_100.0)
    assert (behind.level, behind.message) == ("fail", "this machine is 98.9 s behind the broker")
    ahead = clock_finding(1_000.0, 5_000.0, 5_100.0)
    assert ahead.message == "this machine is 4.0 s ahead of the broker"


def test_groups_without_workers_and_with_spare_ones() -> None:
    groups = {
        "ingest": GroupState("i", "Stable", 3),
        "merge": GroupState("m", "Empty", 0),
        "ondemand": GroupState("o", "Empty", 0),
    }
    assert levels(check_groups(groups, {"ingest": 4, "merge": 4})) == ["ok", "warn", "ok"]
    (spare, *_) = check_groups(groups, {"ingest": 2})
    assert (spare.level, "2 partitions: the others are spare" in spare.message) == ("warn", True)
    unsettled = check_groups({"ingest": GroupState("i", "PreparingRebalance", 2)}, {})
    assert levels(unsettled) == ["warn"]


def books(*blocks: tuple[int, int], end: int = 20, **counts: object) -> Books:
    fold = ManifestFold()
    for block, upto in blocks:
        fold.add(
            Manifest(
                topic="rows", partition=0, block=block, upto=upto, previous=None, sealed=True,
                partitions=1, end_offset=end,
                models={"m": ModelCount(accepted={0: upto - block}, **counts)},  # type: ignore[arg-type]
            )
        )  # fmt: skip
    return Books(fold.accounting({("rows", 0): (0, end)}), True)


def test_gaps_overlaps_and_rejections_are_found() -> None:
    assert levels(check_accounting(books((0, 20)).accounting)) == ["ok"]
    (light,) = check_accounting(books((0, 20), fraction=0.25, thinned=15).accounting)
    assert light.message.startswith("20 rows accepted (15 of them left out of the scores")
    (gap,) = check_accounting(books((0, 5), (8, 20)).accounting)
    assert (gap.level, "rows/0: 3 offsets" in gap.message) == ("fail", True)
    (twice,) = check_accounting(books((0, 9), (8, 20)).accounting)
    assert "two blocks" in twice.message
    (few,) = check_accounting(books((0, 20), rejected={"wrong_type": 1}).accounting)
    assert (few.level, "4.8%" in few.message) == ("warn", True)
    (many,) = check_accounting(books((0, 20), rejected={"wrong_type": 20}).accounting)
    assert (many.level, "50.0%" in many.message) == ("fail", True)


def test_lag_is_bad_without_workers_and_where_nothing_moves() -> None:
    behind = books((0, 5))
    assert check_lag(books((0, 20)), {"ingest": 0}, "ingest").pop().level == "ok"
    assert check_lag(behind, {"ingest": 1}, "ingest").pop().level == "ok"
    alone = check_lag(behind, {"ingest": 0}, "ingest").pop()
    assert (alone.level, alone.message) == ("fail", "15 messages wait and no ingest worker runs")
    stuck = check_lag(replace(behind, moved=False), {"ingest": 1}, "ingest").pop()
    assert (stuck.level, "stuck" in stuck.message) == ("fail", True)
    assert check_lag(books((0, 5), end=10**6), {}, "ingest").pop().level == "warn"


def test_models_without_grid_and_with_windows_wider_than_sketches_live() -> None:
    catalogue = ControlCatalogue()
    assert check_models(catalogue, books().accounting, {}).pop().message == "no models yet"
    waiting = check_models(catalogue, books((0, 20), waiting=7).accounting, {}).pop()
    assert (waiting.level, "7 rows wait for a grid" in waiting.message) == ("warn", True)
    wide = ModelCard(model="m", windows=[Hopping(seconds=7200.0, hop_seconds=3600.0)])
    catalogue.add_card(b"m", wide.to_bytes())
    kept = check_models(catalogue, books((0, 20)).accounting, {"retention.ms": str(HOUR)})
    assert (levels(kept), "2.0 h" in kept[0].message) == (["warn"], True)
    for retention in ({}, {"retention.ms": "-1"}, {"retention.ms": str(3 * HOUR)}):
        assert levels(check_models(catalogue, books((0, 20)).accounting, retention)) == ["ok"]


def test_snapshots_that_stay_behind() -> None:
    assert snapshot_finding(10**9, 10**9 - 60_000, 60.0).level == "ok"
    assert snapshot_finding(10**9, 10**9 + 60_000, 60.0).level == "ok"
    assert snapshot_finding(10**9, 10**9 - 700_000, 60.0).level == "fail"
    assert snapshot_finding(10**9, None, 60.0).level == "warn"


def test_findings_are_safe_to_print_and_add_up() -> None:
    shown = as_text(fail("topics", "\x1b[31mred\n", "\x07do")).plain
    assert shown == "fail topics      \\x1b[31mred\\n\n                 → \\x07do"
    assert summary(0, 0).strip() == "all is well"
    assert summary(1, 2).strip() == "1 to mend, 2 to look at"
    assert "attributary" in versions()[0].message
