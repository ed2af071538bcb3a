"""Every format's recorded messages are the rows that they were made of, and give the same attributions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from foreign import OUTPUTS, converted, native
from merge_stream import feed

from attributary.schemas.adapters.formats import FORMATS
from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.card import Feature, Lifetime, ModelCard, Tumbling
from attributary.schemas.row import Row, encode_row, event_time_ms
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.decode import Record
from attributary.workers.stream.ingest import PartitionIngest
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.options import IngestOptions, MergeOptions

CARD = ModelCard(
    model="churn",
    features=[Feature(name=name) for name in ("age", "income", "tenure")],
    outputs=list(OUTPUTS),
    windows=[Tumbling(seconds=60), Lifetime()],
)
NOW = 1_769_860_900_000


def _values(row: Row) -> tuple[dict[str, float], dict[str, float]]:
    outputs: Any = row.outputs
    if isinstance(outputs, list):
        outputs = dict(zip(OUTPUTS, outputs, strict=True))
    return dict(row.features.items()), outputs


def _by_time(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: event_time_ms(row.time, 0))


def _attributions(rows: Sequence[Row]) -> list[WindowAttribution]:
    catalogue = ControlCatalogue()
    catalogue.add_card(b"churn", CARD.to_bytes())
    options = IngestOptions(block_offsets=8, grid_rows=20, grid_wait_seconds=1)
    ingest = PartitionIngest("rows", 0, 0, catalogue, options)
    records = [Record(place, NOW, encode_row(row)) for place, row in enumerate(rows)]
    ingest.add(records, now=0)
    for proposal in ingest.proposals(now=5):
        catalogue.add_grid(proposal.to_bytes())
    ingest.count(now=5)
    flush = ingest.flush(len(rows))
    merge = MergePartition(catalogue, MergeOptions(idle_seconds=1))
    feed(merge, [*flush.sketches, *flush.manifests], NOW)
    published = list(merge.publish(NOW + 60_000))
    return [found for found in published if isinstance(found, WindowAttribution)]


@pytest.mark.parametrize("name", FORMATS)
def test_a_formats_messages_are_the_rows_that_they_were_made_of(name: str) -> None:
    converter, rows = converted(name)
    expected = native()
    assert len(rows) == len(expected) == 24
    for found, row in zip(_by_time(rows), _by_time(expected), strict=True):
        assert _values(found) == _values(row)
        assert event_time_ms(found.time, 0) == event_time_ms(row.time, 0)
        assert found.model == "churn"
        if name != "bentoml":  # which gives all rows of a request one id
            assert found.id == row.id
    assert len(converter.pairing) == 0
    assert not converter.pairing.lost


@pytest.mark.parametrize("name", FORMATS)
def test_a_formats_messages_give_the_same_attributions_as_native_rows(name: str) -> None:
    _, rows = converted(name)
    expected = _attributions(_by_time(native()))
    assert {found.output for found in expected} == {"p0", "p1"}
    assert {found.accounting.rows for found in expected} == {24}
    assert _attributions(_by_time(rows)) == expected
