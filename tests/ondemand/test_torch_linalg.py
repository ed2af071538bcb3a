"""MCIR-M's heavy steps by torch: the same numbers as numpy's."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from attributary.workers.explainers.linear_algebra import Linalg, NumpyLinalg
from attributary.workers.explainers.mcir import mcir
from attributary.workers.explainers.normal_scores import NormalScores
from attributary.workers.ondemand import torch_linalg
from attributary.workers.ondemand.torch_linalg import TorchLinalg, linalg_on

RNG = np.random.default_rng(2)


@pytest.fixture
def linalg() -> Linalg:
    pytest.importorskip("torch", reason="torch is not installed")
    return TorchLinalg("cpu")


def test_steps_agree_with_numpy(linalg: Linalg, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = RNG.normal(size=(300, 9))
    columns[:, 3], columns[:, 5] = np.round(columns[:, 3]), 1.0
    ranks = NormalScores(columns)
    counts = RNG.multinomial(300, np.full(300, 1 / 300), size=7)
    for most in (1 << 25, 2 * 10 * 300):
        monkeypatch.setattr(torch_linalg, "_NUMBERS_AT_ONCE", most)
        theirs, ours = (
            one.second_moments(ranks, counts, np.array([8, 0, 3, 5]))
            for one in (linalg, NumpyLinalg())
        )
        np.testing.assert_allclose(theirs, ours, rtol=1e-12, atol=1e-9)
    blocks = np.stack([np.corrcoef(RNG.normal(size=(6, 50))) for _ in range(7)])
    found = linalg.cholesky(blocks)
    np.testing.assert_allclose(found, NumpyLinalg().cholesky(blocks), atol=1e-12)
    np.testing.assert_allclose(found @ found.swapaxes(1, 2), blocks, atol=1e-12)


def test_a_singular_block_is_refused(linalg: Linalg) -> None:
    with pytest.raises(np.linalg.LinAlgError):
        linalg.cholesky(np.stack([np.eye(3), -np.eye(3)]))


def test_scores_agree_to_nine_digits(linalg: Linalg) -> None:
    factors = RNG.normal(size=(300, 4))
    X = factors @ RNG.normal(size=(4, 25)) + 0.5 * RNG.normal(size=(300, 25))
    X = np.column_stack([X, X[:, 0], np.ones(300)])
    Q = X[:, :3] @ [1.0, -1.0, 0.5] + RNG.normal(size=300)
    ours, theirs = (mcir(X, Q, bootstraps=6, linalg=one) for one in (None, linalg))
    assert ours.size == theirs.size
    assert ours.neighbourhoods == theirs.neighbourhoods
    for name in ("score", "unique", "joint", "marginal", "interval", "stderr"):
        np.testing.assert_allclose(getattr(theirs, name), getattr(ours, name), rtol=0, atol=1e-9)


def test_the_processor_needs_none_and_a_device_that_is_not_there_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert linalg_on("cpu") is None
    with caplog.at_level(logging.WARNING):
        assert linalg_on("cuda:999") is None
    assert "mcir-m computes on the CPU" in caplog.text
