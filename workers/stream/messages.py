"""What merge publishes, from a window's state: one attribution message per output."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from attributary.schemas.attribution import (
    Accounting,
    FeatureScore,
    LightAgreement,
    Profile,
    Window,
    WindowAttribution,
)
from attributary.workers.maths.scores import ranks, strength_bound
from attributary.workers.maths.window import WindowScores
from attributary.workers.stream.layout import Layout


def attribution_messages(
    model: str,
    layout: Layout,
    scores: WindowScores,
    window: Window,
    accounting: Accounting,
    *,
    revision: int,
    final: bool,
    watermark: int | None,
    computed_at: int,
    profiles: int,
    agreements: Sequence[LightAgreement | None],
) -> Iterator[WindowAttribution]:
    """Yield one message per output; ``profiles`` features at the top carry their profile.

    ``agreements`` has one entry for each output.
    """
    for output, name in enumerate(layout.outputs):
        features = _features(scores, layout, output, profiles)
        yield WindowAttribution(
            model=model,
            output=name,
            window=window,
            revision=revision,
            final=final,
            watermark=watermark,
            computed_at=computed_at,
            epochs=scores.epochs,
            output_quartiles=_triple(scores.y_quartiles[:, output].tolist()),
            features=sorted(features, key=lambda feature: feature.rank),
            groups=_groups(scores, output),
            accounting=accounting,
            light_agreement=agreements[output],
        )


def _features(
    found: WindowScores, layout: Layout, output: int, profiles: int
) -> Iterator[FeatureScore]:
    """Yield the columns' scores in their order."""
    scores = found.scores
    columns = zip(
        scores.score[output].tolist(),
        scores.stderr[output].tolist(),
        scores.interval[output].tolist(),
        scores.effective_rows[output].tolist(),
        scores.direction[output].tolist(),
        scores.strength_low[output].tolist(),
        scores.rank[output].tolist(),
        scores.effect[output].tolist(),
        scores.effect_stderr[output].tolist(),
        found.missing.tolist(),
        found.x_quartiles.T.tolist(),
        found.mutual_information[output].tolist(),
        strict=True,
    )
    for column, (
        score,
        stderr,
        (low, high),
        effective_rows,
        direction,
        strength_low,
        rank,
        effect,
        effect_stderr,
        missing,
        quartiles,
        mutual_information,
    ) in enumerate(columns):
        yield FeatureScore(
            name=layout.columns[column].name,
            score=score,
            stderr=_finite(stderr),
            interval=(low, high),
            effective_rows=effective_rows,
            direction=_sign(direction),
            strength_low=strength_low,
            rank=int(rank),
            effect=_finite(effect),
            effect_stderr=_finite(effect_stderr),
            missing=_finite(missing),
            quartiles=_triple(quartiles),
            mutual_information=_finite(mutual_information),
            profile=_profile(found, output, column) if rank <= profiles else None,
        )


def _profile(found: WindowScores, output: int, column: int) -> Profile | None:
    profile = found.profile
    if profile is None:
        return None
    return Profile(
        edges=profile.x_edges[column].tolist(),
        mean=[_finite(value) for value in profile.mean[output, column]],
        stderr=[_finite(value) for value in profile.stderr[output, column]],
        rows=profile.weight[output, column].tolist(),
    )


def _groups(found: WindowScores, output: int) -> list[FeatureScore]:
    scores = found.scores
    names = list(scores.blocks)
    if not names:
        return []
    intervals = np.stack([scores.block_interval[name][output] for name in names])
    lows = strength_bound(intervals)
    order = ranks(lows[None, :])[0]
    groups = [
        FeatureScore(
            name=name,
            score=float(scores.blocks[name][output]),
            stderr=_finite(scores.block_stderr[name][output]),
            interval=(float(interval[0]), float(interval[1])),
            effective_rows=float(scores.block_effective_rows[name][output]),
            direction=_sign(scores.blocks[name][output] - 0.5),
            strength_low=max(0.0, float(low)),
            rank=int(rank),
        )
        for name, interval, low, rank in zip(names, intervals, lows, order, strict=True)
    ]
    return sorted(groups, key=lambda group: group.rank)


def _sign(value: float) -> Literal[-1, 0, 1]:
    return 0 if value == 0 else (1 if value > 0 else -1)


def _finite(value: float) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _triple(values: Sequence[float]) -> tuple[float, float, float] | None:
    low, middle, high = values
    return (low, middle, high) if all(map(math.isfinite, values)) else None
