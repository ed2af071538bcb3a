"""What ingest and merge hold is bounded, whatever producers send, and the books close all the same."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from streams import NOW, record
from weigh import weigh

from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.card import Lifetime, ModelCard, Tumbling
from attributary.schemas.manifest import Manifest, ModelCount
from attributary.workers.stream import waiting_sketches
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.ingest import Flush, PartitionIngest
from attributary.workers.stream.label_limit import OTHERS, LabelLimit
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.options import IngestOptions, MergeOptions
from attributary.workers.stream.renewals import MOST_EPOCHS
from attributary.workers.stream.turn import Turn
from attributary.workers.stream.views import _QUIET_ROUNDS

FEATURES = 4


class Line:
    """One source partition and the merge of its sketches, a second of the broker's clock a flush."""

    def __init__(
        self, *cards: ModelCard, merge: MergeOptions | None = None, **options: Any
    ) -> None:
        self.catalogue = ControlCatalogue()
        for card in cards:
            self.catalogue.add_card(card.model.encode(), card.to_bytes())
        self.options = IngestOptions(
            **{"block_offsets": 64, "grid_rows": 32, "grid_wait_seconds": 1.0, **options}
        )
        self.ingest = PartitionIngest("rows", 0, 0, self.catalogue, self.options)
        self.merge = MergePartition(self.catalogue, merge or MergeOptions())
        self.offset = 0
        self.now = 0.0
        self.accepted = self.rejected = 0
        self.reasons: set[str] = set()
        self.windows: list[WindowAttribution] = []

    def send(self, model: str, features: dict[str, Any], time: float | None = None) -> None:
        row = {"model": model, "features": features, "outputs": sum(features.values())}
        if time is not None:
            row["time"] = time
        value = json.dumps(row).encode()
        at = NOW + round(self.now * 1000)
        self.ingest.add([record(value, self.offset, timestamp=at)], self.now)
        self.offset += 1

    def settle_grids(self) -> None:
        for proposal in self.ingest.proposals(self.now):
            self.catalogue.add_grid(proposal.to_bytes())
        self.ingest.count(self.now)

    def flush(self) -> Flush:
        """Send what has changed to merge, and publish."""
        self.now += 1.0
        self.settle_grids()
        flush = self.ingest.flush(self.offset)
        at = NOW + round(self.now * 1000)
        for header, body in flush.sketches:
            self.merge.add_sketch(header, body, at)
        for manifest in flush.manifests:
            self.merge.add_manifest(manifest, at)
        self.ingest.acknowledged(flush)
        self.accepted += flush.accepted.total()
        self.rejected += sum(rejection.rows for rejection in flush.rejections)
        self.reasons |= {rejection.letter.reason for rejection in flush.rejections}
        self.publish()
        return flush

    def publish(self) -> None:
        found = self.merge.publish(now=1)
        self.windows += [each for each in found if isinstance(each, WindowAttribution)]

    def newest(self, kind: str, model: str = "m") -> WindowAttribution:
        return [w for w in self.windows if w.window.kind == kind and w.model == model][-1]


def _rows(count: int, scale: float = 1.0) -> Iterator[dict[str, float]]:
    rng = np.random.default_rng(count)
    for values in (scale * rng.standard_normal((count, FEATURES))).tolist():
        yield {f"f{index}": value for index, value in enumerate(values)}


def test_data_that_leaves_every_grid_makes_few_epochs() -> None:
    line = Line(ModelCard(model="m", windows=[Lifetime()]), block_offsets=70)
    weights = []
    for block in range(44):
        for row in _rows(70, scale=10.0 ** (block - 20)):
            line.send("m", row)
        line.flush()
        weights.append(weigh(line.merge, line.ingest, line.catalogue._epochs))
    assert 3 <= len(line.catalogue.layouts("m")) <= MOST_EPOCHS
    assert line.ingest.renewals_held_back > 12
    assert max(weights[34:]) < 1.02 * weights[33]
    assert line.newest("lifetime").accounting.rows == line.accepted == line.offset


def test_the_last_epoch_of_a_layout_is_the_twelfth() -> None:
    line = Line(ModelCard(model="m", windows=[Lifetime()]), block_offsets=70)
    renewals = line.ingest._renewals
    for _ in range(26):  # as if there had been rows without end
        if (epoch := line.catalogue.epoch("m")) is not None:
            renewals._left["m"] = epoch.record.epoch, 10**15
        for row in _rows(70, scale=10.0 ** (line.offset // 70 - 10)):
            line.send("m", row)
        line.flush()
    assert len(line.catalogue.layouts("m")) == MOST_EPOCHS


def test_rows_of_scattered_times_hold_no_more_than_themselves() -> None:
    # All windows stay open: rows may be late.
    card = ModelCard(
        model="m", windows=[Tumbling(seconds=10), Lifetime()], allowed_lateness_seconds=3600
    )
    line = Line(card, block_offsets=10_000, max_panes=1000)
    for row in _rows(64):
        line.send("m", row, time=NOW / 1000)
    line.flush()
    before = weigh(line.ingest), weigh(line.merge)
    for index, row in enumerate(_rows(50)):
        line.send("m", row, time=NOW / 1000 + 10 * (index % 40))
    line.flush()
    dense = FEATURES * 4 * 16 * 16 * 8  # bytes of one pane's cells alone
    assert weigh(line.ingest) - before[0] < 40 * dense / 4
    line.offset += 10_000  # the block ends
    line.send("m", next(_rows(1)), time=NOW / 1000 + 500)
    line.flush()
    line.flush()
    assert len(line.windows) > 30
    assert weigh(line.merge) - before[1] < 40 * dense / 2
    assert line.newest("lifetime").accounting.rows == 115 == line.accepted


def test_a_model_that_has_stopped_is_packed_and_goes_on_to_the_last_bit() -> None:
    def line(quiet: int) -> Line:
        made = Line(ModelCard(model="m", windows=[Tumbling(seconds=60), Lifetime()]))
        for part in range(4):
            for row in _rows(60):
                made.send("m", row, time=NOW / 1000 + part)
            made.flush()
        for _ in range(quiet):
            made.publish()
        weight = weigh(made.merge._models["m"])
        for row in _rows(200):
            made.send("m", row, time=NOW / 1000 + 40)
        made.flush()
        made.weight = weight  # type: ignore[attr-defined]
        return made

    stopped, hot = line(_QUIET_ROUNDS + 1), line(0)
    assert stopped.weight < hot.weight / 2  # type: ignore[attr-defined]
    expected = hot.newest("lifetime").features
    assert stopped.newest("lifetime").features == expected
    assert stopped.newest("lifetime").accounting == hot.newest("lifetime").accounting


@pytest.mark.parametrize("limits", [{"max_windows": 5}, {"max_windows_in_all": 5}])
def test_too_many_open_windows_are_settled_early_and_no_row_is_lost(limits: Any) -> None:
    card = ModelCard(model="m", windows=[Tumbling(seconds=10), Lifetime()])
    line = Line(card, merge=MergeOptions(**limits))
    for row in _rows(64):
        line.send("m", row, time=NOW / 1000)
    line.flush()
    for index, row in enumerate(_rows(20)):
        line.send("m", row, time=NOW / 1000 + 10 * index)
        line.flush()
        assert line.merge._models["m"].open_windows <= 5
    # A row for a window that was settled early is late, and in the lifetime.
    line.send("m", next(_rows(1)), time=NOW / 1000 + 15)
    for _ in range(3):
        for row in _rows(64):
            line.send("m", row, time=NOW / 1000 + 200)
        line.flush()
    assert line.merge.settled_early > 10
    assert [
        text for text in line.merge.refusals if "merge.max_windows" in text
    ] == line.merge.refusals
    assert len(line.merge.refusals) == 1
    newest = line.newest("lifetime").accounting
    assert newest.rows == line.accepted == line.offset
    assert newest.rows_late == 1
    newest_of = {w.window.start: w for w in line.windows if w.window.kind == "tumbling"}
    counted = sum(w.accounting.rows for w in newest_of.values())
    assert counted + newest.rows_late == line.offset


def test_endless_names_of_models_are_refused_and_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registered = ModelCard(model="m", windows=[Lifetime()])
    line = Line(registered, merge=MergeOptions(max_models=15), max_models=10)

    def hostile(names: range) -> int:
        for number in names:
            line.send(f"name-{number}", {"a": 1.0, "b": float(number)})
            if number % 8 == 0:
                line.flush()
        line.now += 2.0
        line.flush()
        line.flush()
        return weigh(line.ingest._blocks, line.merge)

    early = hostile(range(300))
    late = hostile(range(300, 1500))
    assert late < 1.1 * early
    assert len(line.catalogue.models) <= 11
    assert line.reasons == {"too_many_models"}
    assert line.rejected > 1400
    assert line.accepted + line.rejected == line.offset == 1500
    # A model with a card finds its place.
    for row in _rows(64):
        line.send("m", row)
    line.flush()
    line.flush()
    assert line.newest("lifetime").accounting.rows == 64


def test_endless_names_in_manifests_leave_no_trace_in_merge() -> None:
    """Rows without a usable feature are rejected under their model's name, which never gets a grid."""
    line = Line(merge=MergeOptions(max_models=5))
    weights = []
    for number in range(1200):
        line.send(f"name-{number}", {})
        if number % 16 == 0:
            line.now += 2.0
            line.flush()
            weights.append(weigh(line.merge))
    assert max(weights[20:]) < 1.2 * weights[10]
    assert line.rejected > 1100


def test_a_merge_that_is_full_says_so_once_and_closes_the_blocks() -> None:
    line = Line(merge=MergeOptions(max_models=3))
    for number in range(640):
        line.send(f"name-{number % 40}", {"a": float(number), "b": 1.0})
        if number % 80 == 0:
            line.now += 2.0
            line.flush()
    line.flush()
    assert line.merge.refused == 3  # as many are told apart
    assert len(line.merge.refusals) == 1
    assert "merge.max_models" in line.merge.refusals[0]
    assert line.merge.gaps() == {("rows", 0): 0}
    known = {w.model: w for w in line.windows if w.window.kind == "lifetime"}
    assert {w.accounting.rows for w in known.values()} <= {15, 16}
    assert len(known) == 3


def test_sketches_whose_grid_never_comes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_sketches, "MOST_BYTES", 50_000)
    line = Line(ModelCard(model="m", windows=[Lifetime()]), block_offsets=8, grid_rows=8)
    blind = MergePartition(ControlCatalogue(), MergeOptions())
    for row in _rows(200):
        line.send("m", row)
        if line.offset % 8 == 0:
            for header, body in line.flush().sketches:
                blind.add_sketch(header, body, NOW)
    assert len(blind.troubles) > 5
    assert all("epoch 0 is not in the grids topic" in text for text in blind.troubles[:1])
    assert sum(len(entry.body) for entry in blind._unknown) <= 50_000


def test_labels_are_bounded_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    labels = LabelLimit(2)
    with caplog.at_level(logging.WARNING):
        found = [labels.of(name) for name in ("a", "b", "c", "d", "a", "")]
    assert found == ["a", "b", OTHERS, OTHERS, "a", ""]
    assert len(caplog.records) == 1
    assert "'c'" in caplog.text


def test_long_work_gives_way_to_the_loop() -> None:
    async def main() -> list[float]:
        times: list[float] = []

        async def heartbeat() -> None:
            while True:
                times.append(time.monotonic())
                await asyncio.sleep(0)

        beating = asyncio.ensure_future(heartbeat())
        turn = Turn(seconds=0.005)
        for _ in range(32):
            time.sleep(0.002)  # noqa: ASYNC251
            await turn.give()
        beating.cancel()
        return times

    assert len(asyncio.run(main())) >= 10


def test_rows_that_only_another_owner_counted_are_not_merged() -> None:
    """At the limit of models one owner of a block may know a grid and another refuse the rows."""
    line = Line(ModelCard(model="m", windows=[Lifetime()]), block_offsets=64)
    for row in _rows(64):
        line.send("m", row)
    line.flush()
    for row in _rows(40):
        line.send("m", row)
    line.flush()
    assert line.newest("lifetime").accounting.rows == 104
    refused = Manifest(
        topic="rows", partition=0, partitions=1, block=64, upto=128, previous=0, sealed=True,
        acknowledged=64, end_offset=128,
        models={"m": ModelCount(rejected={"too_many_models": 64})},
    )  # fmt: skip
    line.merge.add_manifest(refused, NOW + 10_000)
    line.merge.add_manifest(refused.model_copy(update={"block": 128}), NOW + 10_000)
    line.publish()
    newest = line.newest("lifetime").accounting
    assert (newest.rows, newest.rows_accepted) == (64, 64)
    assert newest.rows_rejected == {"too_many_models": 64}
    assert newest.gaps == 0
