"""The batch computation that the streamed scores must equal, from the rows as they were published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attributary.schemas.attribution import FeatureScore, WindowAttribution
from attributary.schemas.card import Feature, ModelCard
from attributary.service.demo.columns import column_names, feature_columns
from attributary.service.demo.dataset import Numbers, Rows
from attributary.workers.maths.cir import cir


@dataclass(frozen=True)
class Difference:
    """The largest |streamed - batch| CIR over columns, groups and outputs of one window."""

    window: str
    largest: float
    where: str
    scores: int
    rows: int
    streamed_rows: int


def compare(card: ModelCard, rows: Rows, messages: Sequence[WindowAttribution]) -> Difference:
    """Compare the messages of one window, one per output, with ``cir`` over the same rows.

    ``rows`` are all published rows; those of the window are chosen here by their event time.
    """
    window = messages[0].window
    if window.kind != "lifetime":
        rows = rows.where((rows.times >= window.start) & (rows.times < window.end))
    blocks: dict[str | None, list[Feature]] = {}
    for feature in card.features:
        name = feature.group or (None if feature.kind == "numeric" else feature.name)
        blocks.setdefault(name, []).append(feature)
    batch: dict[tuple[str, str], Numbers] = {}
    # Block by block, so that the 0/1 columns of one block are all that is held at once.
    for group, features in blocks.items():
        X = np.column_stack([feature_columns(feature, rows) for feature in features])
        names = [name for feature in features for name in column_names(feature)]
        members = {group: list(range(len(names)))} if group is not None else None
        found = cir(X, rows.outputs, groups=members)
        batch |= {("column", name): found.score[:, j] for j, name in enumerate(names)}
        batch |= {("group", name): score for name, score in found.blocks.items()}
    return _largest(card, rows, messages, batch)


def _largest(
    card: ModelCard,
    rows: Rows,
    messages: Sequence[WindowAttribution],
    batch: dict[tuple[str, str], Numbers],
) -> Difference:
    largest, where, scores = 0.0, "", 0
    for message in messages:
        output = card.outputs.index(message.output)
        kinds: tuple[tuple[str, list[FeatureScore]], ...] = (
            ("column", message.features),
            ("group", message.groups),
        )
        for kind, found in kinds:
            for score in found:
                expected = batch.get((kind, score.name))
                if expected is None:
                    raise ValueError(f"the card has no {kind} {score.name!r}")
                gap = abs(score.score - float(expected[output]))
                gap = math.inf if math.isnan(gap) else gap
                scores += 1
                if gap > largest:
                    largest, where = gap, f"{kind} {score.name}, output {message.output}"
    return Difference(
        window=messages[0].window.kind,
        largest=largest,
        where=where,
        scores=scores,
        rows=len(rows),
        streamed_rows=min(message.accounting.rows for message in messages),
    )
