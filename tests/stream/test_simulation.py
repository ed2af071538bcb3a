"""Random schedules of all that can go wrong, every one of which must end with exact books.

``SIMULATED_SCHEDULES`` says how many; ``make simulate`` runs more of them, and says which fails.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from exact import ExactPane
from simulate import lighten, run_one, run_range
from simulation import SKETCHED, Faults, Simulation
from simulation_check import check

from attributary.workers.maths.pane import PaneSketch
from attributary.workers.stream.held import Held
from attributary.workers.stream.ledger import SourceLedger
from attributary.workers.stream.model_merge import ModelMerge
from attributary.workers.stream.open_sketches import OpenSketches

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


def _first_found(faults: Faults | None = None) -> int | None:
    for seed in range(_FOUND_WITHIN):
        try:
            run_one(seed, faults, long=True)
        except (AssertionError, ValueError):
            return seed
    return None


@pytest.mark.parametrize(
    "faults",
    [Faults(commit_before_acknowledgement=True), Faults(commit_what_is_unfinished=True)],
    ids=["before the acknowledgement", "what is unfinished"],
)
def test_a_wrong_commit_is_found(faults: Faults) -> None:
    assert _first_found(faults) is not None


Patched = Callable[..., Any]


def _adding(add: Patched) -> Patched:
    def faulty(sketches: OpenSketches, held: Held) -> bool:
        header = held.header
        known = sketches.block((header.topic, header.partition), header.block).get(header.pane)
        if known is None:
            return bool(add(sketches, held))
        kind = PaneSketch if held.body[:4] == b"PANE" else ExactPane
        both = kind.from_bytes(known.body)
        both.merge(kind.from_bytes(held.body))
        known.header = msgspec.structs.replace(
            header,
            rows=header.rows + known.header.rows,
            upto=max(header.upto, known.header.upto),
        )
        known.body = both.to_bytes()
        return True

    return faulty


def _lower_wins(add: Patched) -> Patched:
    def faulty(sketches: OpenSketches, held: Held) -> bool:
        header = held.header
        known = sketches.block((header.topic, header.partition), header.block).get(header.pane)
        return (known is None or header.upto < known.header.upto) and bool(add(sketches, held))

    return faulty


def _mixing(take: Patched) -> Patched:
    def faulty(sketches: OpenSketches, source: tuple[str, int], block: int) -> list[Held]:
        variants = [held for held in sketches.variants() if held.header.block == block]
        best: dict[int, Held] = {}
        for held in take(sketches, source, block):
            best[held.header.pane] = held
        for held in variants:
            header, known = held.header, best.get(held.header.pane)
            same = (header.topic, header.partition) == source
            if same and known is not None and header.rows >= known.header.rows:
                best[header.pane] = held
        return [best[pane] for pane in sorted(best)]

    return faulty


@pytest.mark.parametrize(
    ("kind", "methods", "plant"),
    [
        (OpenSketches, ["add"], _adding),
        (OpenSketches, ["add"], _lower_wins),
        (OpenSketches, ["take"], _mixing),
        (SourceLedger, ["is_closed", "counts"], lambda _: lambda *_: False),
        (SourceLedger, ["cuts", "counts"], lambda _: lambda *_: False),
        (ModelMerge, ["holds"], lambda _: lambda *_: True),
    ],
    ids=[
        "adds instead of replacing",
        "keeps the lower sketch",
        "takes panes of several variants",
        "counts a closed block again",
        "counts a truncated block twice",
        "closes a block without its sketches",
    ],
)
def test_a_faulty_merge_is_found(
    kind: type,
    methods: list[str],
    plant: Callable[[Patched], Patched],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for method in methods:
        monkeypatch.setattr(kind, method, plant(getattr(kind, method)))
    assert _first_found() is not None


def test_some_schedules_count_in_real_sketches() -> None:
    assert [Simulation(seed).sketched for seed in (0, 1, SKETCHED)] == [True, False, True]
