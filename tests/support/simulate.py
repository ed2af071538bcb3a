"""Runs many simulated schedules: ``python tests/support/simulate.py --schedules 1000000 --processes 2``.

Prints how far it has come, and each schedule that fails with what replays it alone. The exit code is 1 where
one fails. A run that was cut short goes on with ``--first``. ``--planted``: says instead in how many of the
schedules each planted fault is found.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from planted import PLANTED
from simulation import Faults, Simulation
from simulation_check import check, check_other_readers

# Seeds that are handed to a process at once.
_PORTION = 500
#: One schedule in so many is also read by merges that start later.
_OTHER_READERS = 24


@dataclass
class Result:
    """What came of the schedules ``first`` to ``end``, not included."""

    first: int
    end: int
    #: Why a schedule failed, by its seed.
    failed: dict[int, str] = field(default_factory=dict)
    #: In how many schedules each thing happened.
    happened: Counter[str] = field(default_factory=Counter)
    #: The most memory that the process has taken so far, in MiB.
    memory: int = 0


def run_one(seed: int, faults: Faults | None = None, *, long: bool | None = None) -> Counter[str]:
    """Run a schedule and check its books; return what happened. Raises where it fails."""
    simulation = Simulation(seed, faults=faults, long=long).run()
    check(simulation)
    if seed % _OTHER_READERS == 0:
        check_other_readers(simulation)
    return simulation.happened


def is_found(seed: int, faults: Faults, *, long: bool | None = None) -> bool:
    """Say whether a schedule fails with a planted fault."""
    try:
        run_one(seed, faults, long=long)
    except (AssertionError, LookupError, ValueError):
        return True
    return False


def run_range(first: int, end: int) -> Result:
    """Run the schedules of a range of seeds."""
    result = Result(first, end)
    for seed in range(first, end):
        try:
            happened = run_one(seed)
        except Exception as error:  # whatever it is, the schedule found it
            result.failed[seed] = f"{type(error).__name__}: {error}"
        else:
            result.happened.update(name for name, times in happened.items() if times)
    result.memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    return result


def lighten() -> None:
    """Let the collector leave alone what is loaded: schedules leave little that refers to itself."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def results(first: int, schedules: int, processes: int) -> Iterator[Result]:
    """Yield the results of consecutive portions, in order."""
    ends = range(first, first + schedules, _PORTION)
    portions = [(at, min(at + _PORTION, first + schedules)) for at in ends]
    if processes == 1:
        for portion in portions:
            yield run_range(*portion)
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, _begin) as pool:
        yield from pool.map(_run_portion, portions)


def _begin() -> None:
    logging.disable()
    lighten()


def _run_portion(portion: tuple[int, int]) -> Result:
    return run_range(*portion)


def find_planted(first: int, schedules: int) -> int:
    """Print in how many of the schedules each planted fault is found; return 1 where one is in none."""
    missed = 0
    for name, planted in PLANTED.items():
        with planted.applied() as faults:
            found = [seed for seed in range(first, first + schedules) if is_found(seed, faults)]
        missed += not found
        print(f"{len(found):6d}  {name}" + (f" (first: {found[0]})" if found else ""), flush=True)
    return 1 if missed else 0


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Run simulated schedules of ingest and merge.")
    parser.add_argument("--schedules", type=int, default=10_000, help="how many (10000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="between lines of progress (30)"
    )
    parser.add_argument("--planted", action="store_true", help="plant faults, and find them")
    options = parser.parse_args()
    _begin()
    if options.planted:
        return find_planted(options.first, options.schedules)
    began = said = time.monotonic()
    failed, happened = 0, Counter[str]()
    for result in results(options.first, options.schedules, options.processes):
        failed += len(result.failed)
        happened.update(result.happened)
        for seed, reason in result.failed.items():
            print(f"FAILED schedule {seed}: {reason}")
            print(f"  again: python tests/support/simulate.py --first {seed} --schedules 1")
        done, now = result.end - options.first, time.monotonic()
        last = done == options.schedules
        if last or now - said >= options.seconds or result.failed:
            said = now
            rate = done / (now - began)
            print(
                f"{done:,} of {options.schedules:,} schedules, {failed} failed, {rate:.0f}/s, "
                f"{result.memory} MiB" + ("" if last else f"; go on with --first {result.end}"),
                flush=True,
            )
    for name, schedules in happened.most_common():
        print(f"  {schedules / options.schedules:7.2%}  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
