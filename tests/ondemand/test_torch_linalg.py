"""MCIR-M's heavy steps by torch: the same numbers as numpy's."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from attributary.workers.explainers.gaussian_copula import Linalg, NumpyLinalg
from attributary.workers.explainers.mcir import mcir
from attributary.workers.ondemand.torch_linalg import TorchLinalg, linalg_on

RNG = np.random.default_rng(2)


@pytest.fixture
def linalg() -> Linalg:
    pytest.importorskip("torch", reason="torch is not installed")
    return TorchLinalg("cpu")


def test_steps_agree_with_numpy(linalg: Linalg) -> None:
    Z = RNG.normal(size=(9, 300))
    np.testing.assert_allclose(linalg.gram(Z), NumpyLinalg().gram(Z), rtol=1e-12, atol=1e-9)
    blocks = np.stack([np.corrcoef(RNG.normal(size=(6, 50))) for _ in range(7)])
    found = linalg.cumulative_logdets(blocks)
    np.testing.assert_allclose(found, NumpyLinalg().cumulative_logdets(blocks), atol=1e-12)
    for size in range(1, 7):
        _, expected = np.linalg.slogdet(blocks[:, :size, :size])
        np.testing.assert_allclose(found[:, size - 1], expected, atol=1e-12)


def test_a_singular_block_is_refused(linalg: Linalg) -> None:
    with pytest.raises(np.linalg.LinAlgError):
        linalg.cumulative_logdets(np.stack([np.eye(3), -np.eye(3)]))


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
