"""How the doctor judges what it finds: topics, clocks, groups, books, snapshots."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from aiokafka import ConsumerRecord
from results import LIFETIME, attribution

from attributary.schemas.card import Decayed, Hopping, ModelCard
from attributary.schemas.connection import Connection, Tls
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.service.accounting import Accounting, ManifestFold
from attributary.service.doctor.access import clock_finding
from attributary.service.doctor.broker import versions
from attributary.service.doctor.counted import Books, check_accounting, check_lag, patience
from attributary.service.doctor.finding import Finding, as_given, fail
from attributary.service.doctor.groups import GroupState, check_groups
from attributary.service.doctor.merged import Late, Results, check_merge, late_rows, watch_seconds
from attributary.service.doctor.models import check_models
from attributary.service.doctor.report import as_text, summary
from attributary.service.doctor.results import snapshot_finding
from attributary.service.doctor.topic_settings import TopicState, check_topics
from attributary.service.global_options import GlobalOptions
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
    (well,) = check_topics(SETTINGS, topics(), 1)
    assert (well.level, well.message) == ("ok", "all 12 are there, with the settings they need")
    untold = {name: replace(state, configs={}) for name, state in topics().items()}
    (silent,) = check_topics(SETTINGS, untold, 1)
    assert silent.level == "ok"
    assert silent.message.startswith("all 12 are there; the broker tells none of the settings")
    partly = topics(rows=replace(good("rows"), configs={"retention.ms": "-1"}))
    (some,) = check_topics(SETTINGS, partly, 1)
    told = sum(len(spec.configs) for spec in topic_specs(SETTINGS.topics, SETTINGS.layout))
    assert f"tells {told - 3} of {told} of the settings" in some.message


@pytest.mark.parametrize(
    ("role", "state", "level", "says"),
    [
        ("models", configured("models", cleanup_policy="delete"), "fail", "needs compact"),
        ("grids", configured("grids", cleanup_policy="compact"), "fail", "needs delete"),
        ("grids", configured("grids", retention_ms="1000"), "fail", "needs -1"),
        ("grids", configured("grids", retention_bytes="1048576"), "fail",
        "retention.bytes=1048576, needs -1"),
        ("rows", configured("rows", retention_bytes="1000"), "warn", "rows has retention.bytes=1000"),
        ("sketches", configured("sketches", retention_bytes="9"), "warn", "retention.bytes=9"),
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


def test_what_sets_a_topic_right_can_be_copied() -> None:
    small = topics(grids=configured("grids", retention_bytes="1000"))
    (grids,) = check_topics(SETTINGS, small, 1)
    assert grids.fix == (
        "kafka-configs.sh --bootstrap-server localhost:9092 --alter --entity-type topics --entity-name "
        "attributary.grids --add-config 'retention.bytes=[-1]'"
    )
    secured = Settings(connection=Connection(tls=Tls(enabled=True)))
    (grids,) = check_topics(secured, small, 1)
    assert "localhost:9092 --command-config client.properties --alter" in (grids.fix or "")


def test_few_partitions_of_snapshots_are_told_once() -> None:
    found = check_topics(SETTINGS, topics(snapshots=replace(good("snapshots"), partitions=1)), 1)
    assert [each.level for each in found] == ["fail"]
    assert "snapshots has 1 partition, fewer than the 4" in found[0].message


def test_more_than_is_needed_is_well_and_one_copy_on_many_brokers_is_not() -> None:
    generous = {
        "rows": configured(
            "rows", retention_ms="-1", max_message_bytes="99999999", retention_bytes="-1"
        ),
        "drift": configured("drift", retention_bytes="1000"),  # the newest results are enough
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


INGEST, MERGE = GroupState("i", "Stable", 2), GroupState("m", "Stable", 2)


def block(partition: int, first: int, upto: int, name: str = "m", **counts: object) -> Manifest:
    """Return a sealed block whose offsets hold a row of the model each."""
    count = ModelCount(**{"accepted": {0: upto - first}, **counts})  # type: ignore[arg-type]
    return Manifest(
        topic="rows", partition=partition, block=first, upto=upto, previous=None, sealed=True,
        partitions=2, end_offset=upto, models={name: count},
    )  # fmt: skip


def accounting(
    *blocks: tuple[Manifest, int] | Manifest, ends: tuple[int, ...] = (20,)
) -> Accounting:
    """Return the books of blocks, of which some say when they were written; ``ends`` of the partitions."""
    fold = ManifestFold()
    for each in blocks:
        fold.add(*each) if isinstance(each, tuple) else fold.add(each)
    return fold.accounting({("rows", n): (0, end) for n, end in enumerate(ends)})


def books(first: Accounting, now: Accounting | None = None) -> Books:
    return Books(first, now or first, 2.5)


def judged(
    *blocks: tuple[Manifest, int] | Manifest, ends: tuple[int, ...] = (20,)
) -> list[Finding]:
    return check_accounting(accounting(*blocks, ends=ends))


def test_gaps_overlaps_and_rejections_are_found() -> None:
    assert levels(judged(block(0, 0, 20))) == ["ok"]
    (light,) = judged(block(0, 0, 20, fraction=0.25, thinned=15))
    assert light.message.startswith("20 rows accepted (15 of them left out of the scores")
    (gap,) = judged(block(0, 0, 5), block(0, 8, 20))
    assert (gap.level, "rows/0: 3 offsets are in no" in gap.message) == ("fail", True)
    (twice,) = judged(block(0, 0, 9), block(0, 8, 20))
    assert "1 offset lies in two blocks" in twice.message
    (few,) = judged(block(0, 0, 20, rejected={"wrong_type": 1}))
    assert (few.level, "4.8% of m's rows" in few.message) == ("warn", True)
    (many,) = judged(block(0, 0, 20, rejected={"wrong_type": 20}))
    assert (many.level, "50.0% of m's rows" in many.message) == ("fail", True)


def test_a_log_that_lost_its_end_is_found_and_is_not_called_counted() -> None:
    anew = accounting(block(0, 0, 20), block(1, 0, 9), ends=(3, 9))
    (found,) = check_accounting(anew)
    assert found.level == "fail"
    assert "the log of rows/0 ends at 3, but 20 were counted: the topic was made" in found.message
    assert "rows/1" not in found.message
    (both,) = judged(block(0, 0, 20), block(1, 0, 9), ends=(3, 0))
    assert "but 20 were counted (as with rows/1): the topic" in both.message
    assert "topics.rows" in (found.fix or "")
    assert check_lag(books(anew), INGEST) == []


def test_rejections_are_judged_by_what_came_of_late() -> None:
    hours = [block(0, 0, 9000), block(0, 9000, 9100, accepted={}, rejected={"wrong_type": 100})]
    outage = judged((hours[0], HOUR), (hours[1], 3 * HOUR), ends=(9100,))
    assert levels(outage) == ["fail"]
    assert (
        "100.0% of m's rows of the 10 min to 1970-01-01 03:00 UTC are rejected" in outage[0].message
    )
    mended = judged((hours[1], HOUR), (hours[0], 3 * HOUR), ends=(9100,))
    assert levels(mended) == ["ok"]
    assert "9,000 rows accepted, 100 rejected" in mended[0].message


@pytest.mark.parametrize(("rows", "level"), [(1, "ok"), (5, "warn"), (300, "fail")])
def test_rows_of_no_known_model_are_judged_by_their_share_of_all(rows: int, level: str) -> None:
    nobodys = block(1, 0, rows, "", accepted={}, rejected={"no_model": rows})
    (found,) = judged(block(0, 0, 200), nobodys, ends=(200, rows))
    assert found.level == level
    assert level == "ok" or f"are of no known model: no_model {rows}" in found.message


def test_lag_is_bad_without_workers_and_where_nothing_moves() -> None:
    behind = accounting(block(0, 0, 5))
    assert check_lag(books(accounting(block(0, 0, 20))), INGEST).pop().level == "ok"
    moved = check_lag(books(accounting(block(0, 0, 4)), behind), INGEST).pop()
    assert (moved.level, moved.message) == ("ok", "15 messages wait, and are being counted")
    nobody = GroupState("i", "Empty", 0)
    alone = check_lag(books(accounting(block(0, 0, 19))), nobody).pop()
    assert (alone.level, alone.message) == ("fail", "no ingest worker runs, and 1 message waits")
    stuck = check_lag(books(behind), INGEST).pop()
    assert (stuck.level, stuck.message) == (
        "fail",
        "ingest stands still: 15 messages wait and for 2.5 s none was counted on rows/0 at 5 of 20",
    )
    for state in ("PreparingRebalance", "Unknown"):
        joins = check_lag(books(behind), GroupState("i", state, 1)).pop()
        assert (joins.level, "join or leave" in (joins.fix or "")) == ("warn", True)
    far = accounting(block(0, 0, 5), ends=(10**6,)), accounting(block(0, 0, 6), ends=(10**6,))
    assert check_lag(books(*far), None).pop().level == "warn"


def test_one_partition_that_stands_still_is_not_hidden_by_the_others() -> None:
    before = accounting(block(0, 0, 5), block(1, 0, 5), ends=(9, 9))
    now = accounting(block(0, 0, 5), block(1, 0, 9), ends=(12, 12))
    (found,) = check_lag(books(before, now), INGEST)
    assert found.level == "fail"
    assert "one of 2 ingest workers stands still: 7 messages wait" in found.message
    assert found.message.endswith("none was counted on rows/0 at 5 of 12")
    both = accounting(block(0, 0, 6), block(1, 0, 9), ends=(12, 12))
    assert levels(check_lag(books(before, both), INGEST)) == ["ok"]


def results(whole: bool = True, **rows: int) -> Results:
    return Results(rows=rows, computed_at=dict.fromkeys(rows, 1000), whole=whole)


def late(
    now: Accounting, told: Results, *, closing: bool = False, **cards: ModelCard
) -> dict[str, int]:
    catalogue = ControlCatalogue()
    for name, card in cards.items():
        catalogue.add_card(name.encode(), card.to_bytes())
    return late_rows(books(now), told, catalogue, closing=closing)


def test_accepted_rows_that_no_result_tells_of_are_late() -> None:
    now = accounting(block(0, 0, 20), block(1, 0, 9, "n"), ends=(20, 9))
    assert late(now, results(m=20, n=9)) == {}
    assert late(now, results(m=25, n=9)) == {}  # manifests expire
    assert late(now, results(m=13)) == {"m": 7, "n": 9}
    # Where the newest result was not read, what came during the watch must be in one that was.
    assert late(now, results(whole=False, m=20)) == {}
    grown = books(accounting(block(0, 0, 20), block(1, 0, 5, "n"), ends=(20, 9)), now)
    assert late_rows(grown, results(whole=False, m=20), ControlCatalogue(), closing=False) == {
        "n": 4
    }
    # Rows of no known model have no results, old results expire, and double counts are told already.
    assert late(accounting(block(0, 0, 5, ""), ends=(5,)), results()) == {}
    old = accounting((block(0, 0, 20), HOUR), (block(1, 0, 9, "n"), 9 * HOUR), ends=(20, 9))
    assert late(old, results(n=9)) == {}
    assert late(accounting(block(0, 0, 12), block(0, 8, 20)), results()) == {}


def test_the_most_rows_that_a_result_tells_of_count() -> None:
    read = Results()
    for computed_at, told in ((1000, 60), (2000, 52)):  # by a worker that has lost its partitions
        sent = attribution(LIFETIME, revision=told).model_copy(update={"computed_at": computed_at})
        read.add(ConsumerRecord("results", 0, 0, 0, 0, None, sent.to_bytes(), None, 0, 0, ()))
    assert (read.rows, read.computed) == ({"flight-delay": 60}, 2000)


def test_rows_wait_for_their_window_only_where_no_view_is_published_on_change() -> None:
    now = accounting(block(0, 0, 20))
    day = Hopping(seconds=86400.0, hop_seconds=3600.0)
    windowed = ModelCard(model="m", windows=[day])
    assert late(now, results(), m=windowed) == {}
    assert late(now, results(), m=windowed, closing=True) == {"m": 20}
    decayed = ModelCard(model="m", windows=[day, Decayed(half_life_seconds=60.0)])
    assert late(now, results(), m=decayed) == {"m": 20}


def test_merge_is_stuck_where_rows_are_late_and_no_result_comes() -> None:
    assert check_merge(Late({}, (), 0.0), MERGE, "none yet") is None
    assert check_merge(Late({"m": 7}, (), 0.4), MERGE, "1 s ago") is None  # results come
    stands = Late({"m": 7, "n": 9}, ("n",), 2.5)
    found = check_merge(stands, MERGE, "the newest was computed 2 h ago")
    assert found is not None
    assert (found.level, found.message) == (
        "fail",
        "a merge worker stands still: 9 accepted rows of n are in no result, and for 2.5 s none came; the "
        "newest was computed 2 h ago",
    )
    nobody = check_merge(stands, GroupState("m", "Empty", 0), "none yet")
    assert nobody is not None
    assert (
        nobody.level,
        nobody.message.startswith("no merge worker runs: 9 accepted rows of n"),
    ) == (
        "fail",
        True,
    )
    joins = check_merge(stands, GroupState("m", "CompletingRebalance", 1), "none yet")
    assert joins is not None
    assert joins.level == "warn"
    assert (patience(0.8), patience(10.0)) == (2.5, 20.5)
    assert [watch_seconds(then, 100_000, 0.8) for then in (None, 40_000, 40_001)] == [2.5, 2.5, 5.0]


def test_models_without_grid_and_with_windows_wider_than_sketches_live() -> None:
    catalogue = ControlCatalogue()
    assert check_models(catalogue, accounting(ends=()), {}).pop().message == "no models yet"
    waiting = check_models(catalogue, accounting(block(0, 0, 20, waiting=7)), {}).pop()
    assert (waiting.level, "7 rows wait for a grid" in waiting.message) == ("warn", True)
    wide = ModelCard(model="m", windows=[Hopping(seconds=7200.0, hop_seconds=3600.0)])
    catalogue.add_card(b"m", wide.to_bytes())
    kept = check_models(catalogue, accounting(block(0, 0, 20)), {"retention.ms": str(HOUR)})
    assert (levels(kept), "2.0 h" in kept[0].message) == (["warn"], True)
    for retention in ({}, {"retention.ms": "-1"}, {"retention.ms": str(3 * HOUR)}):
        assert levels(check_models(catalogue, accounting(block(0, 0, 20)), retention)) == ["ok"]


def test_snapshots_that_stay_behind() -> None:
    assert snapshot_finding(10**9, 10**9 - 60_000, 60.0, new=False).level == "ok"
    assert snapshot_finding(10**9, 10**9 + 60_000, 60.0, new=False).level == "ok"
    assert snapshot_finding(10**9, 10**9 - 700_000, 60.0, new=False).level == "fail"
    assert snapshot_finding(10**9, None, 60.0, new=False).level == "warn"
    assert snapshot_finding(10**9, None, 60.0, new=True).level == "ok"
    assert accounting((block(0, 0, 5), HOUR), block(0, 5, 9)).begun_recently is False
    assert accounting((block(0, 0, 5), HOUR), (block(0, 5, 9), HOUR)).begun_recently


def test_findings_are_safe_to_print_and_add_up() -> None:
    shown = as_text(fail("topics", "\x1b[31mred\n", "\x07do")).plain
    assert shown == "fail topics      \\x1b[31mred\\n\n                 → \\x07do"
    assert summary(0, 0).strip() == "all is well"
    assert summary(1, 2).strip() == "1 to mend, 2 to look at"
    assert "attributary" in versions()[0].message


def test_commands_are_told_with_the_options_that_were_given() -> None:
    told = fail("topics", "missing", "run `attributary topics create`, see `attributary --help`")
    assert as_given(told, GlobalOptions()) == told
    given = as_given(told, GlobalOptions(bootstrap="b:1", prefix="my rows."))
    assert given.fix == (
        "run `attributary --bootstrap b:1 --prefix 'my rows.' topics create`, see `attributary --help`"
    )
    start = fail("broker", "none", "start it (`attributary up --port 1`)")
    own = as_given(start, GlobalOptions(Path("a.toml"), "localhost:1"))
    assert own.fix == "start it (`attributary --config a.toml up --port 1`)"
