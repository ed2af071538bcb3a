"""What the merge service shows of the partitions that it owns."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import TopicPartition
from prometheus_client import CollectorRegistry

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.merge_service import MergeService, _Owned
from attributary.workers.stream.metrics import StreamMetrics
from attributary.workers.stream.options import MergeOptions


class Core(MergePartition):
    """A merge whose books have gaps as the test says."""

    def __init__(self, missing: int) -> None:
        super().__init__(ControlCatalogue(), MergeOptions())
        self.missing = missing

    def gaps(self) -> dict[tuple[str, int], int]:
        """Return them."""
        return {("rows", 0): self.missing}


@pytest.mark.parametrize("missing", [(37, 0), (0, 37), (37, 12)])
def test_rows_that_one_partition_lacks_are_a_gap_whatever_the_others_hold(
    missing: tuple[int, int],
) -> None:
    registry = CollectorRegistry()

    async def shown() -> float | None:
        service = MergeService(
            Connection(bootstrap="localhost:1"),
            Topics(),
            MergeOptions(),
            ControlCatalogue(),
            StreamMetrics.build(registry),
        )
        cores = [Core(count) for count in missing]
        for number, core in enumerate(cores):
            service._owned[TopicPartition("sketches", number)] = _Owned(core, 0, None)
        service._export()
        found = registry.get_sample_value(
            "attributary_gap_offsets", {"topic": "rows", "partition": "0"}
        )
        for core in cores:
            core.missing = 0
        service._export()
        mended = registry.get_sample_value(
            "attributary_gap_offsets", {"topic": "rows", "partition": "0"}
        )
        assert mended == 0
        return found

    assert asyncio.run(shown()) == 37
