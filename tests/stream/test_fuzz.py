"""Whole cores under messages and cards that nobody would send: no error, and every row accounted for."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pyarrow as pa
import pytest
from streams import NOW, arrow, record

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

MODELS = ("m", "n", "o", "p")
MESSAGES = 120


def _value(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(13 if depth else 15)
    plain: list[Any] = [
        None,
        True,
        "",
        rng.choice(["a", "b", "ü", "\ud800", "x" * 50]),
        rng.choice([math.nan, math.inf, -math.inf]),
        rng.choice([1e308, -1e308, 5e-324]),
        rng.randint(-(10**30), 10**30),
    ]
    if kind < len(plain):
        return plain[kind]
    if kind < 13:
        return rng.gauss(0, 1)
    return [_value(rng, 1)] if kind == 13 else {"a": _value(rng, 1)}


def _row(rng: random.Random) -> dict[str, Any]:
    number = rng.gauss(0, 1)
    row = {
        "model": rng.choice([*MODELS, f"x{rng.randint(0, 20)}"]),
        "features": {
            name: _value(rng) for name in rng.sample(["a", "b", "c", "d", "k"], rng.randint(0, 5))
        },
        "outputs": rng.choice([number, [number], [number, None], {"y": number}, _value(rng)]),
    }
    times = [0, -1e9, NOW / 1000 - rng.random() * 100, 2**53 - 1, -(2**53) + 1, _value(rng)]
    for name, values, share in (
        ("time", times, 0.3),
        ("weight", [1, 2.5, 1e-12, 1e12, 1e300, 0, -1, _value(rng)], 0.2),
        ("id", [_value(rng)], 0.2),
    ):
        if rng.random() < share:
            row[name] = rng.choice(values)
    return row


def _message(rng: random.Random) -> tuple[bytes, int]:
    """Return a message and how many rows it stands for."""
    kind = rng.random()
    if kind < 0.05:
        return rng.randbytes(rng.randint(0, 40)), 1
    if kind < 0.75:
        return json.dumps(_row(rng)).encode(), 1
    if kind < 0.9:
        rows = [_row(rng) for _ in range(rng.randint(1, 6))]
        return json.dumps(rows).encode(), len(rows)
    size = rng.randint(1, 4)
    columns: dict[str, Any] = {"y": [rng.gauss(0, 1)] * size}
    for name in rng.sample(["a", "b", "k", "_id", "_time", "_weight"], rng.randint(0, 4)):
        try:
            columns[name] = pa.array([_value(rng, 1) for _ in range(size)])
        except (pa.ArrowException, OverflowError, UnicodeError):
            continue
    return arrow(columns, model=rng.choice(MODELS)), size


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
        for message in merge.publish(now=1):
            assert type(message).from_bytes(message.to_bytes())

    for offset in range(MESSAGES):
        if rng.random() < 0.05:
            card = _card(rng)
            catalogue.add_card(card.model.encode(), card.to_bytes())
        value, rows = _message(rng)
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
