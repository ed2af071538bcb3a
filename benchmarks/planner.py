"""Partitions and processes for a workload: as many as keep every process below a share of its core."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from benchmarks.capacity_model import Capacity, Deployment, Workload
from benchmarks.unit_fit import Costs

#: Of a core, at most: the rest is for bursts, rebalances and catching up.
TARGET = 0.6
# Of a topic. Kafka holds more, and nothing here would be the better for it.
_MOST_PARTITIONS = 4_000
_TURNS = 60


@dataclass(frozen=True)
class Plan:
    """One of the deployments, and how many processes of each role it takes; ``fits`` False: no number
    is enough."""

    capacity: Capacity
    ingest_processes: int
    merge_processes: int
    fits: bool

    @property
    def ingest_process_memory(self) -> float:
        """Bytes of one ingest process."""
        base = self.capacity.costs.client["worker_memory"]
        return base + self.capacity.ingest_memory / self.ingest_processes

    @property
    def merge_process_memory(self) -> float:
        """Bytes of one merge process."""
        base = self.capacity.costs.client["worker_memory"]
        return base + self.capacity.merge_memory / self.merge_processes

    @property
    def memory(self) -> float:
        """Bytes of all processes of one deployment."""
        return (
            self.ingest_processes * self.ingest_process_memory
            + self.merge_processes * self.merge_process_memory
        )


def plan(workload: Workload, like: Deployment, costs: Costs, target: float = TARGET) -> Plan:
    """Return the smallest deployment found for a workload, ``like`` in all but its numbers of partitions.

    Partitions cost something themselves, and with few of them blocks are short: numbers move towards what
    they need until that is what they are. Without an end below ``_MOST_PARTITIONS``, that many are returned.
    """
    each = like.partitions_per_process
    workload = replace(
        workload,
        rows_per_second=workload.rows_per_second / like.deployments,
        models=math.ceil(workload.models / like.deployments),
    )
    least = math.ceil(workload.models / (0.9 * like.merge.max_models))
    most = _MOST_PARTITIONS // each

    def at(processes: tuple[int, int]) -> tuple[Plan, tuple[int, int]]:
        sources, sinks = (count * each for count in processes)
        made = replace(like, source_partitions=sources, sketch_partitions=sinks)
        capacity = Capacity(workload, made, costs)
        need = (
            max(1, math.ceil(capacity.total_ingest / target)),
            max(math.ceil(least / each), math.ceil(capacity.total_merge / target)),
        )
        fits = need[0] <= processes[0] and need[1] <= processes[1]
        return Plan(capacity, *processes, fits), need

    found = None
    now = min(most, 64), min(most, max(64, math.ceil(least / each)))
    for _ in range(_TURNS):
        made, need = at(now)
        if made.fits and (
            found is None or sum(now) < found.ingest_processes + found.merge_processes
        ):
            found = made
        towards = [
            min(most, wanted if wanted > was else (was + wanted) // 2)
            for was, wanted in zip(now, need, strict=True)
        ]
        if tuple(towards) == now:
            break
        now = towards[0], towards[1]
    return found or at((most, most))[0]
