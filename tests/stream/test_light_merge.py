"""Light sketches to windows: weights, variants of a block, agreement with the full scores, replays."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from streams import NOW, card, grid, record, some_rows

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.card import Lifetime, Tumbling
from attributary.schemas.manifest import Manifest
from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths import agreement
from attributary.workers.maths.cir import cir
from attributary.workers.maths.sample import in_fraction
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.decode import Record
from attributary.workers.stream.ingest import PartitionIngest
from attributary.workers.stream.lightweight import FULL
from attributary.workers.stream.live_counts import LiveCounts
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.options import IngestOptions, MergeOptions
from attributary.workers.stream.row_hashes import row_hashes

NAMES = [f"x{i}" for i in range(10)]
START = NOW // 60_000 * 60_000
CARD = card(
    *NAMES,
    windows=[Tumbling(seconds=20), Lifetime()],
    allowed_lateness_seconds=10.0,
    pane_seconds=10.0,
)
SIZE, ROWS = 16, 20
# What a message says of the moment it was published at.
_MOMENT = {
    "computed_at": True,
    "watermark": True,
    "window": {"end"},
    "accounting": {"offsets", "duplicates", "rows_accepted", "rows_late"},
}
Part = Manifest | tuple[SketchHeader, bytes]
Floats = Any


def options(fraction: float = 1.0, **fields: Any) -> IngestOptions:
    mode = {"lightweight": "always", "lightweight_fraction": fraction} if fraction < 1 else {}
    return IngestOptions(**{"block_offsets": SIZE, "calibration_every": 0, **mode, **fields})


def catalogue() -> ControlCatalogue:
    made = ControlCatalogue()
    made.add_card(b"m", CARD.to_bytes())
    made.add_grid(grid(CARD, some_rows(NAMES, 400)).to_bytes())
    return made


def messages(partition: int, count: int, seconds: float = 1.0) -> tuple[list[Record], Floats]:
    """Return records of ROWS rows each, ``seconds`` apart, and the rows (count, ROWS, 11), y last."""
    rng = np.random.default_rng(partition)
    X = rng.standard_normal((count, ROWS, len(NAMES)))
    y = X @ np.linspace(-1, 1, len(NAMES)) + rng.standard_normal((count, ROWS))
    found = []
    for offset in range(count):
        rows = [
            {
                "model": "m",
                "features": dict(zip(NAMES, x.tolist(), strict=True)),
                "outputs": [out],
                "time": START / 1000 + offset * seconds,
            }
            for x, out in zip(X[offset], y[offset].tolist(), strict=True)
        ]
        found.append(record(json.dumps(rows).encode(), offset, timestamp=START))
    return found, np.concatenate([X, y[..., None]], axis=2)


def kept(partition: int, offset: int, fraction: float) -> Floats:
    """Return which rows of a message a light pass keeps, (ROWS,)."""
    hashes = row_hashes(f"rows/{partition}", [offset] * ROWS, range(ROWS), None)
    return in_fraction(hashes, fraction)


class Owner:
    """One ingest process of one partition."""

    def __init__(
        self, records: list[Record], of: IngestOptions, *, partition: int = 0, partitions: int = 1
    ) -> None:
        self._records = records
        self.core = PartitionIngest("rows", partition, 0, catalogue(), of, partitions=partitions)
        self._read = 0

    def read(self, upto: int) -> None:
        """Count the records before an offset."""
        self.core.add(self._records[self._read : upto], 0.0, end_offset=len(self._records))
        self._read = max(upto, self._read)

    def flush(self) -> list[Part]:
        """Return what a flush sends, acknowledged."""
        flush = self.core.flush(len(self._records))
        self.core.acknowledged(flush)
        return [*flush.sketches, *flush.manifests]


def all_of(records: list[Record], of: IngestOptions, **place: int) -> list[Part]:
    owner = Owner(records, of, **place)
    owner.read(len(records))
    return owner.flush()


def feed(merge: MergePartition, parts: Iterable[Part]) -> None:
    for part in parts:
        if isinstance(part, Manifest):
            merge.add_manifest(part, START)
        else:
            merge.add_sketch(*part, START)


def new_merge() -> MergePartition:
    return MergePartition(catalogue(), MergeOptions(idle_seconds=1e6))


def published(merge: MergePartition) -> dict[Any, WindowAttribution]:
    """Publish, and return the attributions by the second that their window starts at, or 'lifetime'."""
    return {
        "lifetime" if m.window.kind == "lifetime" else (m.window.start - START) // 1000: m
        for m in merge.publish(now=1)
        if isinstance(m, WindowAttribution)
    }


def scores(message: WindowAttribution) -> list[float]:
    return [next(f.score for f in message.features if f.name == name) for name in NAMES]


def batch(rows: Floats, weights: Floats | None = None) -> list[float]:
    found: list[float] = cir(rows[:, :-1], rows[:, -1:], weights=weights).score[0].tolist()
    return found


def test_rows_that_are_kept_stand_for_the_others_where_fractions_mix() -> None:
    (first, full), (second, light) = messages(0, 40), messages(1, 40)
    merge = new_merge()
    feed(merge, all_of(first, options(), partition=0, partitions=2))
    feed(merge, all_of(second, options(0.25), partition=1, partitions=2))
    found = published(merge)
    chosen = np.array([kept(1, offset, 0.25) for offset in range(40)])
    for name, upto in ((0, 20), ("lifetime", 40)):
        message = found[name]
        start = 0
        held = light[start:upto][chosen[start:upto]]
        rows = np.concatenate([full[start:upto].reshape(-1, 11), held])
        weights = np.r_[np.ones((upto - start) * ROWS), np.full(len(held), 4.0)]
        np.testing.assert_allclose(scores(message), batch(rows, weights), atol=1e-3)
        accounting = message.accounting
        assert accounting.rows == message.revision == 2 * (upto - start) * ROWS
        assert accounting.rows_thinned == (upto - start) * ROWS - len(held)
        assert accounting.fractions == [0.25, 1.0]
        expected = cir(rows[:, :-1], rows[:, -1:], weights=weights)
        sizes = {f.name: f.effective_rows for f in message.features}
        np.testing.assert_allclose(
            [sizes[name] for name in NAMES], expected.effective_rows[0], rtol=0.05
        )
    assert found["lifetime"].accounting.rows_accepted == 2 * 40 * ROWS
    assert found["lifetime"].light_agreement is None


def test_without_the_mode_every_message_says_so() -> None:
    records, _ = messages(0, 40)
    merge = new_merge()
    feed(merge, all_of(records, options()))
    for message in published(merge).values():
        assert (message.accounting.rows_thinned, message.accounting.fractions) == (0, [1.0])
        assert message.light_agreement is None


def test_of_two_owners_fractions_one_holds_for_a_block_whole_and_no_window_loses_rows() -> None:
    records, rows = messages(0, 16)  # panes 0 and 10 of one block
    old, new = Owner(records, options()), Owner(records, options(0.25))
    merge = new_merge()
    old.read(12)
    feed(merge, old.flush())
    before = published(merge)["lifetime"]
    new.read(9)
    feed(merge, new.flush())
    assert published(merge) == {}  # the old owner's variant still counts more
    new.read(14)
    sent = new.flush()
    by_pane = {part[0].pane: part for part in sent if not isinstance(part, Manifest)}
    (manifest,) = (part for part in sent if isinstance(part, Manifest))
    first, second = sorted(by_pane)
    del by_pane[first]  # lost: the new owner's first pane counts 9 messages of 10
    feed(merge, [by_pane[second], manifest])
    again = published(merge).get("lifetime", before)
    assert (again.accounting.rows, again.accounting.fractions) == (12 * ROWS, [1.0])
    feed(merge, all_of(records[:14], options(0.25)))
    message = published(merge)["lifetime"]
    assert (message.accounting.rows, message.accounting.fractions) == (14 * ROWS, [0.25])
    held = np.concatenate([rows[offset][kept(0, offset, 0.25)] for offset in range(14)])
    np.testing.assert_allclose(scores(message), batch(held), atol=1e-3)
    assert before.accounting.rows == 12 * ROWS


def test_of_equal_rows_the_larger_fraction_holds_until_the_block_is_closed() -> None:
    records, rows = messages(0, 16)
    merge = new_merge()
    feed(merge, all_of(records, options(0.25)))
    assert published(merge)["lifetime"].accounting.fractions == [0.25]
    feed(merge, all_of(records, options()))
    message = published(merge)["lifetime"]
    assert (message.accounting.rows, message.accounting.fractions) == (16 * ROWS, [1.0])
    np.testing.assert_allclose(scores(message), batch(rows.reshape(-1, 11)), atol=1e-3)
    closed, _ = messages(0, 17)
    merge = new_merge()
    feed(merge, all_of(closed, options(0.25)))
    feed(merge, all_of(closed, options()))
    message = published(merge)["lifetime"]
    assert message.accounting.fractions == [0.25, 1.0]  # the first block, and the open one
    assert message.accounting.rows_thinned == sum(
        int((~kept(0, offset, 0.25)).sum()) for offset in range(16)
    )
    assert merge.gaps() == {("rows", 0): 0}


def _agreements(full: Floats, light: Floats) -> list[float | None]:
    a, b = np.array(batch(full)), np.array(batch(light))
    return [
        agreement.jaccard_at_k(np.abs(2 * a - 1), np.abs(2 * b - 1)),
        agreement.kendall_tau(a, b),
        agreement.spearman_rho(a, b),
        agreement.procrustes_residual(2 * a - 1, 2 * b - 1),
        agreement.symmetric_kl(a, b),
    ]


@pytest.mark.parametrize("fraction", [0.2, 0.5])
def test_messages_say_how_far_light_scores_agree_with_full_ones(fraction: float) -> None:
    records, rows = messages(0, 4 * SIZE)
    merge = new_merge()
    feed(merge, all_of(records, options(fraction, calibration_every=3)))
    found = published(merge)
    # The blocks at 0 and 48 are sketched both ways; the last one is still open.
    for name, offsets in (
        (0, range(16)),
        (40, range(48, 60)),
        ("lifetime", [*range(16), *range(48, 64)]),
    ):
        message = found[name].light_agreement
        assert message is not None
        full = np.concatenate([rows[offset] for offset in offsets])
        light = np.concatenate([rows[offset][kept(0, offset, fraction)] for offset in offsets])
        assert (message.rows, message.rows_light) == (len(full), len(light))
        assert message.fractions == [fraction]
        measured = [message.jaccard_at_8, message.kendall, message.spearman]
        measured += [message.procrustes, message.symmetric_kl]
        np.testing.assert_allclose(
            np.array(measured, dtype=float),
            np.array(_agreements(full, light), dtype=float),
            atol=5e-3,
        )
    assert found[20].light_agreement is None  # none of its blocks is
    assert found["lifetime"].accounting.fractions == [fraction, 1.0]


def test_drift_messages_say_what_both_of_their_windows_rest_on() -> None:
    records, _ = messages(0, 64)
    merge = new_merge()
    old, new = Owner(records, options()), Owner(records, options(0.25))
    old.read(33)
    feed(merge, old.flush())
    new.read(64)
    feed(merge, new.flush())
    drifts = [m for m in merge.publish(now=1) if isinstance(m, WindowDrift)]
    preceding = {(m.window.start - START) // 1000: m for m in drifts if m.reference == "preceding"}
    mixed = preceding[20]
    assert (mixed.reference_fractions, mixed.reference_rows_thinned) == ([1.0], 0)
    assert mixed.fractions == [0.25, 1.0]
    thinned = sum(int((~kept(0, offset, 0.25)).sum()) for offset in range(32, 40))
    assert (mixed.rows, mixed.rows_thinned) == (20 * ROWS, thinned)
    held, light = 12 * ROWS, 8 * ROWS - thinned
    kish = (held + 4 * light) ** 2 / (held + 16 * light)
    expected = np.sqrt(-np.log(0.025) / 2 * (1 / (20 * ROWS) + 1 / kish))
    assert mixed.features[0].ks_critical == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_of_the_manifests_repeats_a_run_of_mixed_fractions_to_the_last_bit(
    seed: int,
) -> None:
    """Owners come and go, each with a fraction of its own; what is sent is acknowledged."""
    rng = random.Random(seed)
    every = rng.choice([0, 2, 3])
    records, _ = messages(0, 5 * SIZE + 3)
    live, counts, merge = [], LiveCounts(), new_merge()
    newest: dict[Any, WindowAttribution] = {}
    owners: list[Owner] = []
    for _ in range(20):
        if not owners or rng.random() < 0.2:
            lag = rng.choice([1, 40, 1000])
            of = options(rng.choice([0.2, 0.5]), calibration_every=every, lightweight="behind")
            of = of.model_copy(update={"lightweight_above_lag": lag})
            owners.append(Owner(records, of))
        owner = rng.choice(owners)
        owner.read(rng.randint(0, len(records)))
        live += owner.flush()
    for part in live:
        feed(merge, [part])
        if isinstance(part, Manifest):
            counts.add(Manifest.from_bytes(part.to_bytes()))
        if rng.random() < 0.3:
            newest.update(published(merge))
    upto = max(part.upto for part in live if isinstance(part, Manifest))
    newest.update(published(merge))
    core = PartitionIngest(
        "rows", 0, 0, catalogue(), options(), counted_as=lambda m, b: counts.counting((m, 0, b))
    )
    again, fresh = new_merge(), new_merge()
    core.add(records[:upto], 0.0)
    flush = core.flush(0)
    feed(again, [*flush.sketches, *flush.manifests])
    feed(fresh, live)
    texts = [
        {name: message.model_dump_json(exclude=_MOMENT) for name, message in found.items()}
        for found in (newest, published(again), published(fresh))
    ]
    assert len(texts[0]) > 3
    assert texts[1] == texts[0]
    assert texts[2] == texts[0]


def test_blocks_without_a_manifest_are_replayed_in_full() -> None:
    assert LiveCounts().counting(("m", 0, 0)) == FULL
