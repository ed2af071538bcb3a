"""The centroid format read and written by the ``tdigest`` package itself."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from attributary.workers.maths.tdigest import TDigests
from attributary.workers.maths.tdigest_exchange import from_centroid_dicts, to_centroid_dicts

# Of the extra `interop`: its dependencies have no wheels, so it needs a C compiler.
TDigest = pytest.importorskip("tdigest").TDigest

PERCENTS = [1, 5, 25, 50, 75, 95, 99]


def digest(values: npt.NDArray[np.float64]) -> TDigests:
    result = TDigests(values.shape[1])
    result.update(values)
    return result


def ranks(values: npt.NDArray[np.float64], points: npt.ArrayLike) -> npt.NDArray[np.float64]:
    return np.searchsorted(np.sort(values), points) / values.size


@pytest.fixture
def values() -> npt.NDArray[np.float64]:
    rng = np.random.default_rng(0)
    return np.column_stack([rng.standard_normal(6_000), rng.lognormal(size=6_000)])


def test_the_package_reads_what_we_write(values: npt.NDArray[np.float64]) -> None:
    for j, column in enumerate(to_centroid_dicts(digest(values))):
        theirs = TDigest().update_from_dict(json.loads(json.dumps(column)))
        assert theirs.n == column["n"] == 6_000
        estimate = [theirs.percentile(p) for p in PERCENTS]
        np.testing.assert_allclose(
            ranks(values[:, j], estimate), np.array(PERCENTS) / 100, atol=0.015
        )


def test_we_read_what_the_package_writes(values: npt.NDArray[np.float64]) -> None:
    packages = []
    for j in range(2):
        theirs = TDigest(delta=0.005)
        theirs.batch_update(values[:2_000, j])
        packages.append(theirs)
    ours = from_centroid_dicts([theirs.to_dict() for theirs in packages])
    bare = from_centroid_dicts([theirs.centroids_to_list() for theirs in packages])
    assert ours.to_bytes() == bare.to_bytes()
    assert ours.count.tolist() == [2_000, 2_000]
    for j in range(2):
        estimate = ours.quantile(np.array(PERCENTS) / 100)[:, j]
        np.testing.assert_allclose(
            ranks(values[:2_000, j], estimate), np.array(PERCENTS) / 100, atol=0.005
        )
        peers = [packages[j].percentile(p) for p in PERCENTS]
        gap = ranks(values[:2_000, j], estimate) - ranks(values[:2_000, j], peers)
        assert np.abs(gap).max() < 0.005


def test_the_mean_and_count_fields_are_the_package_s() -> None:
    theirs = TDigest()
    for _ in range(3):
        theirs.update(7.0)
    assert theirs.centroids_to_list() == [{"m": 7.0, "c": 3}]
    (ours,) = to_centroid_dicts(digest(np.full((3, 1), 7.0)))
    assert ours["centroids"] == [{"m": 7.0, "c": 3.0}]


def test_there_and_back_loses_nothing(values: npt.NDArray[np.float64]) -> None:
    hostile = np.column_stack(
        [values, values[:, 0] > 1, np.full(6_000, np.nan), np.where(values[:, 0] > 0, 1e308, 0)]
    )
    before = digest(hostile)
    after = from_centroid_dicts(json.loads(json.dumps(to_centroid_dicts(before))))
    levels = np.linspace(0, 1, 101)
    np.testing.assert_array_equal(after.quantile(levels), before.quantile(levels))
    np.testing.assert_array_equal(after.cdf([0.0, 1.0]), before.cdf([0.0, 1.0]))
    assert after.count.tolist() == before.count.tolist()
    assert to_centroid_dicts(before)[3]["centroids"] == []


def test_a_digest_larger_than_ours_is_compressed() -> None:
    values = np.random.default_rng(1).random(1_500)
    ours = from_centroid_dicts([[{"m": v, "c": 2.0} for v in values.tolist()]])
    assert ours.weight[0] == 3_000
    assert np.count_nonzero(ours.centroids.weight) <= 250
    levels = np.linspace(0.01, 0.99, 99)
    np.testing.assert_allclose(ranks(values, ours.quantile(levels).ravel()), levels, atol=0.005)


def test_fractional_counts_and_missing_atoms() -> None:
    ours = from_centroid_dicts([[{"m": 2.0, "c": 0.25}, {"m": 1.0, "c": 0.5}]])
    assert (ours.count[0], ours.weight[0]) == (1, 0.75)
    # Nothing says that the three values of each centroid are equal: interpolate between them.
    blurred = from_centroid_dicts([[{"m": 0.0, "c": 3.0}, {"m": 1.0, "c": 3.0}]])
    assert blurred.quantile([0.5])[0, 0] == pytest.approx(0.5)
    assert from_centroid_dicts([]).columns == 0


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([{"m": float("nan"), "c": 1.0}], "finite m"),
        ([{"m": 1.0, "c": 0.0}], "c > 0"),
        ([{"m": 1.0, "c": float("inf")}], "c > 0"),
        ({"centroids": [{"m": 1.0, "c": 1.0}], "min": 2.0}, "outside"),
        ({"centroids": [{"m": 1.0, "c": 1.0}], "max": float("inf")}, "outside"),
    ],
)
def test_centroids_that_cannot_be_are_refused(column: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_centroid_dicts([column])
