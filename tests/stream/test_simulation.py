"""Random schedules of all that can go wrong, every one of which must end with exact books.

``SIMULATED_SCHEDULES=100000 pytest tests/stream/test_simulation.py`` runs more of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import pytest
from simulation import Faults, Merger, Simulation, compacted

from attributary.workers.maths.pane import PaneSketch
from attributary.workers.stream.open_sketches import OpenSketches
from attributary.workers.stream.views import Held

SCHEDULES = int(os.environ.get("SIMULATED_SCHEDULES", "150"))
_CHUNK = 50
# A planted fault has to be found within so many schedules; each is found within 100.
_FOUND_WITHIN = 200


@pytest.mark.parametrize("chunk", range(0, SCHEDULES, _CHUNK))
def test_every_schedule_ends_with_exact_books(chunk: int) -> None:
    for seed in range(chunk, min(chunk + _CHUNK, SCHEDULES)):
        try:
            simulation = Simulation(seed)
            simulation.run()
            simulation.check()
            if seed % 4 == 0:
                _check_other_readers(simulation)
        except AssertionError as error:
            raise AssertionError(f"schedule {seed}: {error}") from error


def _check_other_readers(simulation: Simulation) -> None:
    """A merge that starts afterwards, and one that finds a compacted log, publish the same books."""
    fresh, after_compaction = Merger(simulation), Merger(simulation)
    simulation.catch_up(fresh)
    simulation.catch_up(after_compaction, [compacted(log) for log in simulation.sketches])
    simulation.check(mergers=[fresh])
    # Compaction moves records behind later ones, so that rows may look late: they are in the lifetime.
    simulation.check(mergers=[after_compaction], windows=False)
    if not simulation.learn:
        for key, bodies in simulation.final_sketches():
            assert len(bodies) == 1, f"{key!r} is not the same whoever computes it"


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_schedules_of_many_rows_end_with_the_batch_scores(seed: int, learn: bool) -> None:
    simulation = Simulation(seed, records=60, width=90, learn=learn, models=("a",))
    simulation.run(steps=90)
    assert simulation.written.accepted["a"] > 3000
    simulation.check(scores=True)


def _first_found(faults: Faults | None = None) -> int | None:
    for seed in range(_FOUND_WITHIN):
        simulation = Simulation(seed, faults=faults)
        try:
            simulation.run()
            simulation.check()
        except (AssertionError, ValueError):
            return seed
    return None


def test_a_commit_before_the_acknowledgement_is_found() -> None:
    assert _first_found(Faults(commit_before_acknowledgement=True)) is not None


def _adding(add: Callable[[OpenSketches, Held], bool]) -> Callable[[OpenSketches, Held], bool]:
    def faulty(sketches: OpenSketches, held: Held) -> bool:
        header = held.header
        known = sketches.block((header.topic, header.partition), header.block).get(header.pane)
        if known is None:
            return add(sketches, held)
        both = PaneSketch.from_bytes(known.body)
        both.merge(PaneSketch.from_bytes(held.body))
        known.header = msgspec.structs.replace(
            header,
            rows=header.rows + known.header.rows,
            upto=max(header.upto, known.header.upto),
        )
        known.body = both.to_bytes()
        return True

    return faulty


def _lower_wins(
    add: Callable[[OpenSketches, Held], bool],
) -> Callable[[OpenSketches, Held], bool]:
    def faulty(sketches: OpenSketches, held: Held) -> bool:
        header = held.header
        known = sketches.block((header.topic, header.partition), header.block).get(header.pane)
        return (known is None or header.upto < known.header.upto) and add(sketches, held)

    return faulty


@pytest.mark.parametrize("plant", [_adding, _lower_wins])
def test_a_merge_that_adds_or_keeps_the_lower_sketch_is_found(
    plant: Callable[..., Callable[[OpenSketches, Held], bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OpenSketches, "add", plant(OpenSketches.add))
    assert _first_found() is not None
