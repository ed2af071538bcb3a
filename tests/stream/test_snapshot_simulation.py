"""Random schedules in which merge dies anywhere, also inside a snapshot: every one ends with exact books."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from simulate import lighten
from simulation import Merger
from simulation_check import check
from simulation_snapshots import SnapshotSimulation

from attributary.workers.stream.ledger import SourceLedger
from attributary.workers.stream.snapshot_log import Entry, SnapshotWriter

SCHEDULES = int(os.environ.get("SIMULATED_SNAPSHOT_SCHEDULES", "400"))
#: What must happen in so many of a hundred schedules, or they check less than they say.
_HAPPENS = {
    "snapshot": 50,
    "loaded a snapshot": 25,
    "crash in a snapshot": 25,
    "snapshot by an old owner": 4,
    "sketches truncated": 3,
    "merge restarted": 50,
    "late": 25,
}


@pytest.fixture(autouse=True)
def light_collector() -> Iterator[None]:
    before = gc.get_threshold()
    lighten()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def _run(seed: int, **options: Any) -> SnapshotSimulation:
    simulation = SnapshotSimulation(seed, long=True, **options)
    try:
        simulation.run()
        check(simulation)
    except Exception as error:
        raise AssertionError(f"schedule {seed}: {type(error).__name__}: {error}") from error
    return simulation


def test_every_schedule_ends_with_exact_books() -> None:
    happened: Counter[str] = Counter()
    for seed in range(SCHEDULES):
        happened.update(name for name, times in _run(seed).happened.items() if times)
    least = {name: SCHEDULES * share // 100 for name, share in _HAPPENS.items()}
    assert not {name: happened[name] for name in least if happened[name] < least[name]}


def test_rows_that_are_taken_back_replace_the_message_that_counted_them() -> None:
    """Retention cuts a block that was counted and published, and not committed."""
    simulation = _run(4044)
    message = simulation.published["b", "lifetime", None].message
    assert message.accounting.rows == 8
    assert message.revision >= 9  # it had counted 9


def test_a_block_that_begins_inside_another_does_not_count_beside_it() -> None:
    """Merge publishes when it has read its sketches, and not yet the manifest that cuts the other one."""
    _run(17845)


@pytest.mark.parametrize("seed", [1, 3])
def test_real_sketches_say_the_same_to_the_last_bit_as_to_a_merge_that_never_stopped(
    seed: int,
) -> None:
    simulation = SnapshotSimulation(
        seed,
        sketched=True,
        partitions=2,
        records=30,
        width=20,
        block_offsets=8,
        values="any",
        learn=False,
    ).run()
    check(simulation, close=0.05)
    assert simulation.happened["loaded a snapshot"]
    undisturbed = Merger(simulation)
    simulation.catch_up(undisturbed)
    for model in simulation.models:
        key = model, "lifetime", None
        found, expected = simulation.published[key].message, undisturbed.published[key].message
        assert found.features == expected.features
        assert found.output_quartiles == expected.output_quartiles
        assert found.accounting.rows == expected.accounting.rows > 100


def _first_found(within: int = 800) -> str:
    """Return what is wrong with the first schedule that fails."""
    for seed in range(within):
        try:
            _run(seed)
        except AssertionError as error:
            return str(error)
    return "nothing is found"


def test_books_without_the_blocks_that_are_closed_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    restored = SourceLedger.from_state

    def forgetful(state: Any) -> SourceLedger:
        ledger = restored(state)
        ledger._spans = []
        return ledger

    monkeypatch.setattr(SourceLedger, "from_state", staticmethod(forgetful))
    assert ": AssertionError" in _first_found()


def test_an_index_that_forgets_what_open_windows_need_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put = SnapshotWriter.put

    def careless(self: SnapshotWriter, name: str, version: Any, data: bytes, needs: Any) -> Any:
        return put(self, name, version, data, None)

    monkeypatch.setattr(SnapshotWriter, "put", careless)
    assert "gone" in _first_found()


def test_parts_that_overwrite_those_of_the_snapshot_before_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cut = SnapshotWriter._cut

    def in_place(self: SnapshotWriter, name: str, data: bytes, held: Entry | None) -> Any:
        other = None if held is None else msgspec.structs.replace(held, slot=1 - held.slot)
        entry, records = cut(self, name, data, other)
        return (entry if records or held is None else held), records

    monkeypatch.setattr(SnapshotWriter, "_cut", in_place)
    assert "what the log has lost" in _first_found(3000)
