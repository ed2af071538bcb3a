"""The part of a correlation that neighbourhoods need: like the whole, with all that they look at."""

from __future__ import annotations

import numpy as np
import pytest

from attributary.workers.explainers.linked_blocks import linked_blocks
from attributary.workers.explainers.normal_scores import NormalScores


def random_neighbourhoods(rng: np.random.Generator, d: int, reach: int) -> list[list[int]]:
    """Neighbours within groups of ``reach`` columns that lie anywhere."""
    group = rng.permutation(d) // reach
    return [
        rng.permutation(np.flatnonzero((group == group[i]) & (np.arange(d) != i)))[:5].tolist()
        for i in range(d)
    ]


@pytest.mark.parametrize(("d", "reach"), [(1, 1), (7, 1), (200, 4), (200, 90), (130, 130)])
def test_every_neighbourhood_lies_in_one_block_with_the_outputs(d: int, reach: int) -> None:
    rng = np.random.default_rng(d)
    near, outputs = random_neighbourhoods(rng, d, reach), np.arange(d, d + 2)
    blocks = linked_blocks(near, outputs)
    inside = np.concatenate([block[:-2] for block in blocks])
    assert sorted(inside.tolist()) == list(range(d)), "each feature in one block"
    for i, others in enumerate(near):
        (block,) = [one for one in blocks if i in one]
        assert {i, *others, d, d + 1} <= set(block.tolist())
    if reach <= 4:
        assert max(map(len, blocks)) <= 66
        assert len(blocks) <= -(-d // 60)


def test_a_chain_of_neighbours_is_one_block() -> None:
    near = [[i - 1] if i else [] for i in range(100)]
    (block,) = linked_blocks([*near, []], np.array([101]))[:1]
    assert set(range(100)) <= set(block.tolist())


def test_a_correlation_of_blocks_is_that_of_the_whole() -> None:
    rng = np.random.default_rng(1)
    columns = rng.standard_normal((90, 12))
    columns[:, 3] = 5.0
    columns[:, 5] = np.round(columns[:, 5])
    scores = NormalScores(columns)
    whole = scores.correlation()
    blocks = [np.array([0, 7, 3, 11]), np.array([5, 1, 2, 11])]
    part = scores.correlation(blocks=blocks)
    needed = np.zeros((12, 12), dtype=bool)
    for block in blocks:
        needed[np.ix_(block, block)] = True
    assert part[needed] == pytest.approx(whole[needed], abs=1e-14)
    assert not part[~needed].any()
