"""Whole cores under messages and cards that nobody would send: no error, and every row accounted for."""

from __future__ import annotations

import random

import pytest
from fuzz import MODELS, message
from streams import NOW, record

from attributary.schemas.card import (
    Baseline,
    Decayed,
    Feature,
    Hopping,
    Lifetime,
    ModelCard,
    Tumbling,
)
from attributary.schemas.manifest import Manifest
from attributary.schemas.topics import Topics
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.ingest import PartitionIngest
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.options import IngestOptions, MergeOptions
from attributary.workers.stream.outgoing import flush_records

MESSAGES = 120


def _card(rng: random.Random) -> ModelCard:
    names = rng.sample(["a", "b", "c", "k"], rng.randint(0, 4))
    kinds = ("numeric", "categorical", "token")
    edges = Baseline(x_edges=[[0, 1]] * rng.randint(0, 4), y_edges=[[0, 1]], rows=3)
    pane = rng.choice([1, 10, 60])
    return ModelCard(
        model=rng.choice(MODELS),
        features=[
            Feature(name=n, kind=rng.choice(kinds), group=rng.choice([None, "g", "a"]))
            for n in names
        ],
        outputs=rng.choice([[], ["y"], ["y", "z"], ["output"]]),
        strict=rng.random() < 0.3,
        pane_seconds=pane,
        allowed_lateness_seconds=rng.choice([0, 60]),
        windows=rng.choice(
            [
                [Lifetime()],
                [Tumbling(seconds=60), Lifetime()],
                [Hopping(seconds=120, hop_seconds=60), Decayed(half_life_seconds=0.001)],
                [Decayed(half_life_seconds=100.0)],
            ]
        ),
        samples=rng.choice([0, 0, 5]),
        baseline=rng.choice([None, None, edges]),
    )


# Sums of 1e308 pass beyond float64 and float32 here and there, and are bounded where it matters.
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(30))
def test_nothing_ends_a_core_and_every_row_is_accounted_for(seed: int) -> None:
    rng = random.Random(seed)
    catalogue = ControlCatalogue()
    options = IngestOptions(
        block_offsets=rng.choice([7, 64]),
        grid_rows=rng.choice([1, 20]),
        grid_wait_seconds=1,
        max_models=rng.choice([4, 1000]),
        max_levels=3,
    )
    core = PartitionIngest("rows", 0, 0, catalogue, options)
    merge = MergePartition(catalogue, MergeOptions(profile_features=3))
    newest: dict[int, Manifest] = {}
    sent, now = 0, 0.0

    def settle_grids() -> None:
        for proposal in core.proposals(now):
            catalogue.add_grid(proposal.to_bytes())
        core.count(now)

    def flush(offset: int) -> None:
        nonlocal merge
        flush = core.flush(offset + 1)
        assert all(len(r.value or b"") < 10**6 for r in flush_records(flush, Topics(), 3))
        for header, body in flush.sketches:
            merge.add_sketch(header, body, NOW + offset * 1000)
        for manifest in flush.manifests:
            merge.add_manifest(manifest, NOW + offset * 1000)
            newest[manifest.block] = manifest
        core.acknowledged(flush)
        if merge.stale:
            merge = MergePartition(catalogue, MergeOptions(profile_features=3))
        for result in merge.publish(now=1):
            assert type(result).from_bytes(result.to_bytes())

    for offset in range(MESSAGES):
        if rng.random() < 0.05:
            card = _card(rng)
            catalogue.add_card(card.model.encode(), card.to_bytes())
        value, rows = message(rng)
        sent += rows
        core.add([record(value, offset, timestamp=NOW + offset * 1000)], now)
        now += rng.choice([0, 0.5])
        if rng.random() < 0.3:
            settle_grids()
        if rng.random() < 0.15:
            flush(offset)
    while core.waiting_rows:
        now += 10
        settle_grids()
    flush(MESSAGES)
    counts = [count for manifest in newest.values() for count in manifest.models.values()]
    assert sum(c.rows_accepted + c.rows_rejected for c in counts) == sent
    assert not any(c.waiting for c in counts)
