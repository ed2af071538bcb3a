"""The bottom-k row sample against a brute-force choice, and the stability of its hashes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from attributary.workers.maths.sample import (
    RowSample,
    SampledRows,
    hash_ids,
    hash_integers,
    in_fraction,
)
from attributary.workers.maths.wire import IncompatibleStateError


def offered(n: int, seed: int, columns: int = 3, outputs: int = 2) -> SampledRows:
    rng = np.random.default_rng(seed)
    return SampledRows(
        hash_integers(rng.permutation(n)),
        rng.standard_normal((n, columns)),
        rng.standard_normal((n, outputs)),
        rng.integers(0, 10**12, n),
    )


def cut(rows: SampledRows, chosen: npt.NDArray[np.integer]) -> SampledRows:
    return rows.take(chosen)


def same(left: SampledRows, right: SampledRows) -> None:
    for mine, theirs in zip(left, right, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_known_hashes_never_change() -> None:
    # BLAKE2b-64 of b"" and b"row-1" by hashlib's definition, SplitMix64(0) by its reference code.
    assert [hex(h) for h in hash_ids([b"", "row-1"])] == [
        "0xb4b2797457a0a6e4",
        "0xdbe44db078306e5c",
    ]
    assert hex(hash_integers([0])[0]) == "0xe220a8397b1dcdaf"
    assert hash_ids(["é"])[0] == hash_ids(["é".encode()])[0]
    assert hash_ids([]).shape == (0,)


def test_hashes_are_the_same_in_another_process() -> None:
    program = (
        "from attributary.workers.maths.sample import hash_ids, hash_integers;"
        "print(hash_ids(['a', b'b']).tolist(), hash_integers([-1, 7]).tolist())"
    )
    other = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    ours = f"{hash_ids(['a', b'b']).tolist()} {hash_integers([-1, 7]).tolist()}\n"
    assert other.stdout == ours


@pytest.mark.parametrize("kind", ["text", "integer"])
def test_hashes_are_uniform(kind: str) -> None:
    ids = np.arange(40_000)
    hashes = hash_integers(ids) if kind == "integer" else hash_ids([f"row-{i}" for i in ids])
    assert np.unique(hashes).size == ids.size
    for shift in (0, 20, 56):
        counts = np.bincount(((hashes >> np.uint64(shift)) & np.uint64(255)).astype(np.int64))
        assert stats.chisquare(counts).pvalue > 1e-4
    assert stats.kstest(hashes / 2.0**64, "uniform").pvalue > 1e-4


def test_integers_of_any_width_and_no_other_kind() -> None:
    assert np.array_equal(hash_integers(np.array([5], dtype=np.int8)), hash_integers([5]))
    with pytest.raises(TypeError, match="expected integers"):
        hash_integers([1.0])


def test_fractions_are_nested_and_have_their_size() -> None:
    hashes = hash_integers(np.arange(50_000))
    before = np.zeros(50_000, dtype=bool)
    for fraction in (0.2, 0.3, 0.4, 0.5, 0.75, 1.0):
        chosen = in_fraction(hashes, fraction)
        assert np.all(chosen >= before)
        deviation = 4 * np.sqrt(fraction * (1 - fraction) / 50_000)
        assert abs(chosen.mean() - fraction) <= deviation
        before = chosen
    assert before.all()
    assert in_fraction(np.array([2**64 - 1], dtype=np.uint64), 1.0).all()
    for fraction in (0.0, 1.1, -0.5, float("nan")):
        with pytest.raises(ValueError, match="fraction"):
            in_fraction(hashes, fraction)


@pytest.mark.parametrize("size", [1, 7, 64, 5_000])
def test_the_smallest_hashes_stay_however_rows_arrive(size: int) -> None:
    rows = offered(3_000, seed=1)
    expected = cut(rows, np.argsort(rows.hashes)[:size])
    whole = RowSample(size, 3, 2)
    whole.update(*rows)
    same(whole.rows(), expected)
    rng = np.random.default_rng(2)
    merged = RowSample(size, 3, 2)
    for piece in np.array_split(rng.permutation(3_000), 9):
        part = RowSample(size, 3, 2)
        for block in np.array_split(piece, 4):
            part.update(*cut(rows, block))
        merged.merge(RowSample.from_bytes(part.to_bytes()))
    assert merged.to_bytes() == whole.to_bytes()


def test_rows_seen_twice_count_once() -> None:
    rows = offered(500, seed=3)
    once, twice = RowSample(50, 3, 2), RowSample(50, 3, 2)
    once.update(*rows)
    twice.update(*rows)
    twice.update(*rows)
    twice.merge(once)
    same(twice.rows(), once.rows())
    assert (once.seen[0], twice.seen[0]) == (500, 1_500)


def test_differing_rows_of_one_id_leave_the_same_one_in_any_order() -> None:
    hashes = np.full(4, 9, dtype=np.uint64)
    X = np.array([[2.0], [1.0], [np.nan], [0.0]])
    time = np.array([5, 5, 5, 6])
    kept = []
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]):
        sample = RowSample(3, 1, 0)
        for i in order:
            sample.update(hashes[[i]], X[[i]], np.zeros((1, 0)), time[[i]])
        kept.append(sample.rows().X.tolist())
    assert kept == [[[1.0]]] * 3


def test_strata_keep_their_own_share() -> None:
    rows = offered(20_000, seed=4)
    edges = np.array([-2.0, 2.0])
    sample = RowSample(32, 3, 2, stratum_output=1, edges=edges)
    for block in np.array_split(np.arange(20_000), 20):
        sample.update(*cut(rows, block))
    stratum = np.digitize(rows.Y[:, 1], edges)
    assert sample.seen.tolist() == np.bincount(stratum).tolist()
    assert sample.quotas.tolist() == [11, 11, 10]
    expected = []
    for k, quota in enumerate((11, 11, 10)):
        members = np.flatnonzero(stratum == k)
        expected.append(members[np.argsort(rows.hashes[members])[:quota]])
    same(sample.rows(), cut(rows, np.concatenate(expected)))
    back = RowSample.from_bytes(sample.to_bytes())
    assert back.to_bytes() == sample.to_bytes()
    assert back.edges.tolist() == [-2.0, 2.0]


def test_outputs_that_are_not_numbers_have_a_stratum() -> None:
    sample = RowSample(6, 0, 1, edges=[0.0])
    Y = np.array([[np.nan], [-1.0], [np.inf], [-np.inf], [0.0]])
    sample.update(hash_integers(np.arange(5)), np.zeros((5, 0)), Y, np.arange(5))
    assert sample.seen.tolist() == [2, 3]
    assert sample.rows().hashes.size == 5


def test_a_mean_over_the_sample_estimates_the_mean_of_all_rows() -> None:
    # The stated use: the sample is uniform over ids, so its mean is off by the sampling error only.
    errors = []
    for seed in range(60):
        rows = offered(2_000, seed)
        rows = rows._replace(hashes=hash_integers(np.arange(2_000) + 10_000 * seed))
        sample = RowSample(100, 3, 2)
        sample.update(*rows)
        spread = rows.X[:, 0].std() / np.sqrt(100) * np.sqrt(1 - 100 / 2_000)
        errors.append((sample.rows().X[:, 0].mean() - rows.X[:, 0].mean()) / spread)
    assert abs(np.mean(errors)) < 4 / np.sqrt(60)
    assert 0.7 < np.std(errors) < 1.3


def test_size_zero_keeps_nothing_and_state_is_bounded() -> None:
    rows = offered(4_000, seed=5)
    none, some = RowSample(0, 3, 2), RowSample(20, 3, 2)
    none.update(*rows)
    some.update(*rows)
    assert none.rows().X.shape == (0, 3)
    assert none.seen.tolist() == [4_000]
    assert len(some.to_bytes()) < 20 * 8 * 7 + 200
    again = RowSample.from_bytes(none.to_bytes())
    again.merge(none)
    assert again.seen.tolist() == [8_000]


def test_reading_does_not_mutate() -> None:
    sample = RowSample(5, 3, 2)
    sample.update(*offered(100, seed=6))
    before, twin = sample.to_bytes(), sample.copy()
    sample.rows().X[:] = 0.0
    sample.seen[:] = 0
    twin.update(*offered(100, seed=7))
    assert sample.to_bytes() == before


def test_what_does_not_fit_is_refused() -> None:
    rows = offered(10, seed=8)
    sample = RowSample(5, 3, 2)
    with pytest.raises(ValueError, match="expected"):
        sample.update(rows.hashes, rows.X[:, :2], rows.Y, rows.event_time)
    with pytest.raises(TypeError, match="uint64"):
        sample.update(rows.hashes.astype(np.float64), *rows[1:])
    with pytest.raises(TypeError, match="integers"):
        sample.update(*rows[:3], np.zeros(10))
    for other in (RowSample(6, 3, 2), RowSample(5, 3, 2, edges=[0.0])):
        with pytest.raises(ValueError, match="cannot merge"):
            sample.merge(other)
    for edges in ([1.0, 0.0], [np.nan], [[1.0]]):
        with pytest.raises(ValueError, match="edges"):
            RowSample(5, 3, 2, edges=edges)
    with pytest.raises(ValueError, match="stratum_output"):
        RowSample(5, 3, 2, edges=[0.0], stratum_output=2)
    with pytest.raises(ValueError, match=">= 0"):
        RowSample(-1, 3, 2)


def test_damaged_bytes_are_refused_or_harmless() -> None:
    sample = RowSample(4, 2, 1, edges=[0.0])
    sample.update(*offered(30, seed=9, columns=2, outputs=1))
    data, refused = sample.to_bytes(), 0
    for place in range(len(data)):
        broken = bytearray(data)
        broken[place] ^= 0x41
        try:
            assert RowSample.from_bytes(bytes(broken)).rows().hashes.size <= 4
        except IncompatibleStateError:
            refused += 1
    assert refused > 40
