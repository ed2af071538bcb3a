"""Random schedules of all that can go wrong, every one of which must end with exact books.

``SIMULATED_SCHEDULES`` says how many; ``make simulate`` runs more of them, and says which fails.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator

import pytest
from planted import PLANTED
from simulate import is_found, lighten, run_range
from simulation import SKETCHED, Simulation
from simulation_check import check

SCHEDULES = int(os.environ.get("SIMULATED_SCHEDULES", "10000"))
_CHUNK = 500
#: A planted fault has to be found within so many long schedules.
_FOUND_WITHIN = 1000
#: What must happen in so many of a thousand schedules, or they check less than they say.
_HAPPENS = {
    "flush": 900,
    "acknowledgement lost": 300,
    "crash": 120,
    "crash in a flush": 90,
    "crash before the commit": 40,
    "sent again": 300,
    "out of order in a flush": 300,
    "partitions out of order": 200,
    "two owners": 75,
    "flush by an old owner": 15,
    "handed over": 50,
    "merge restarted": 50,
    "published": 50,
    "grid proposed": 100,
    "late": 15,
    "far future": 30,
    "truncated": 30,
    "truncated before it was counted": 20,
    "lost before it was read": 1,
    "commit moved back": 0.2,
    "thinned": 50,
    "compared": 50,
}
# What happened in the schedules that these tests ran.
_happened: Counter[str] = Counter()
_ran: list[int] = []


@pytest.fixture(autouse=True)
def light_collector() -> Iterator[None]:
    before = gc.get_threshold()
    lighten()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


@pytest.mark.parametrize("first", range(0, SCHEDULES, _CHUNK))
def test_every_schedule_ends_with_exact_books(first: int) -> None:
    result = run_range(first, min(first + _CHUNK, SCHEDULES))
    _happened.update(result.happened)
    _ran.extend(range(result.first, result.end))
    assert not result.failed


def test_what_schedules_are_for_happens_in_many_of_them() -> None:
    if len(_ran) < _CHUNK:  # run alone
        test_every_schedule_ends_with_exact_books(0)
    least = {name: len(_ran) * share // 1000 for name, share in _HAPPENS.items()}
    assert not {name: _happened[name] for name in least if _happened[name] < least[name]}


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_schedules_of_many_rows_end_with_the_batch_scores(seed: int, learn: bool) -> None:
    simulation = Simulation(
        seed,
        sketched=True,
        partitions=2,
        records=60,
        width=90,
        block_offsets=8,
        values="any",
        learn=learn,
        models=("a",),
    )
    simulation.run(steps=90)
    check(simulation, close=1e-3)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_is_found(name: str) -> None:
    with PLANTED[name].applied() as faults:
        assert any(is_found(seed, faults, long=True) for seed in range(_FOUND_WITHIN))


def test_some_schedules_count_in_real_sketches() -> None:
    assert [Simulation(seed).sketched for seed in (0, 1, SKETCHED)] == [True, False, True]
