"""The laws that every accumulator obeys, checked for each case of the registry in ``laws``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from laws import CASES, Case, Result

from attributary.workers.maths.wire import IncompatibleStateError

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def fed(case: Case, *parts: tuple[int, int]) -> Any:
    """Return an accumulator fed with (seed, rows) after (seed, rows)."""
    accumulator = case.make()
    for seed, n in parts:
        case.feed(accumulator, np.random.default_rng(seed), n)
    return accumulator


def merged(case: Case, *accumulators: Any) -> Any:
    total = case.make()
    for accumulator in accumulators:
        total.merge(accumulator)
    return total


def same(left: Result, right: Result, tolerance: Mapping[str, float]) -> None:
    assert left.keys() == right.keys()
    for name, mine in left.items():
        theirs = np.asarray(right[name])
        if name not in tolerance:
            np.testing.assert_array_equal(mine, theirs, err_msg=name)
            continue
        size = max(1.0, float(np.nanmax(np.abs(mine), initial=0.0)))
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=tolerance[name] * size, err_msg=name)


@every_case
def test_results_see_the_rows(case: Case) -> None:
    """Without this, an accumulator that ignores its rows would obey every law."""
    one, other, more = fed(case, (1, 400)), fed(case, (2, 400)), fed(case, (1, 400), (3, 900))
    for changed in (other, more, case.make()):
        results = case.result(one), case.result(changed)
        assert any(
            a.shape != b.shape or not np.array_equal(a, b, equal_nan=True)
            for a, b in zip(results[0].values(), results[1].values(), strict=True)
        )


@every_case
def test_an_empty_merge_is_the_identity(case: Case) -> None:
    whole = fed(case, (1, 700))
    before = whole.to_bytes()
    whole.merge(case.make())
    assert whole.to_bytes() == before
    assert merged(case, whole).to_bytes() == before
    assert merged(case, case.make(), case.make()).to_bytes() == case.make().to_bytes()
    nothing = fed(case, (1, 0))
    same(case.result(nothing), case.result(case.make()), {})


@every_case
def test_split_and_merged_is_the_whole(case: Case) -> None:
    parts = [(1, 900), (2, 1), (3, 0), (4, 1_600), (5, 40)]
    pieces = [fed(case, part) for part in parts]
    whole = case.result(fed(case, *parts))
    same(case.result(merged(case, *pieces)), whole, case.tolerance)
    same(case.result(merged(case, *pieces[::-1])), whole, case.tolerance)


@every_case
def test_merging_associates(case: Case) -> None:
    a, b, c = (fed(case, part) for part in ((1, 1_100), (2, 1_300), (3, 30)))
    left = merged(case, merged(case, a, b), c)
    right = merged(case, a, merged(case, b, c))
    same(case.result(left), case.result(right), case.tolerance)


@every_case
def test_merging_leaves_the_other_alone(case: Case) -> None:
    total, other = fed(case, (1, 800)), fed(case, (2, 1_500))
    before = other.to_bytes()
    total.merge(other)
    assert other.to_bytes() == before
    # Nor do they share memory: what one takes up later must not reach the other.
    case.feed(total, np.random.default_rng(3), 1_200)
    assert other.to_bytes() == before
    after = total.to_bytes()
    case.feed(other, np.random.default_rng(4), 1_200)
    assert total.to_bytes() == after


@every_case
def test_reading_does_not_mutate(case: Case) -> None:
    read, left_alone = fed(case, (1, 1_300)), fed(case, (1, 1_300))
    first = case.result(read)
    read.to_bytes()
    same(case.result(read), first, {})
    for values in first.values():
        if values.flags.writeable:
            values[...] = np.zeros_like(values)
    for accumulator in (read, left_alone):
        case.feed(accumulator, np.random.default_rng(2), 200)
    assert read.to_bytes() == left_alone.to_bytes()


@every_case
def test_the_same_rows_give_the_same_bytes(case: Case) -> None:
    assert fed(case, (1, 1_500), (2, 9)).to_bytes() == fed(case, (1, 1_500), (2, 9)).to_bytes()


@every_case
@pytest.mark.parametrize("n", [0, 1, 300, 2_500])
def test_bytes_round_trip(case: Case, n: int) -> None:
    accumulator = fed(case, (1, n))
    data = accumulator.to_bytes()
    back = type(accumulator).from_bytes(data)
    assert back.to_bytes() == data
    same(case.result(back), case.result(accumulator), case.stored)
    assert type(accumulator).from_bytes(memoryview(data)).to_bytes() == data
    # What came back is alive: it takes rows and merges.
    case.feed(back, np.random.default_rng(2), 700)
    whole = fed(case, (1, n), (2, 700))
    same(case.result(back), case.result(whole), _both(case.tolerance, case.stored))
    joined = merged(case, type(accumulator).from_bytes(data), fed(case, (2, 700)))
    same(case.result(joined), case.result(whole), _both(case.tolerance, case.stored))


@every_case
def test_foreign_newer_and_truncated_bytes_are_refused(case: Case) -> None:
    accumulator = fed(case, (1, 600))
    data, read = accumulator.to_bytes(), type(accumulator).from_bytes
    assert data[:5] == case.magic + bytes([case.version])
    refused(read, b"XXXX" + data[4:])
    refused(read, case.magic + bytes([case.version + 1]) + data[5:])
    refused(read, data + b"\0")
    for size in {*range(0, min(len(data), 120)), len(data) // 2, len(data) - 1}:
        refused(read, data[:size])


@every_case
@settings(max_examples=15, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 1_400), min_size=1, max_size=5),
    seed=st.integers(0, 2**32 - 1),
    order=st.randoms(use_true_random=False),
)
def test_any_split_merged_in_any_order_is_the_whole(
    case: Case, sizes: list[int], seed: int, order: Any
) -> None:
    parts = [(seed + k, n) for k, n in enumerate(sizes)]
    whole = case.result(fed(case, *parts))
    pieces = [type(case.make()).from_bytes(fed(case, part).to_bytes()) for part in parts]
    while len(pieces) > 1:
        order.shuffle(pieces)
        pieces[0].merge(pieces.pop())
    same(case.result(pieces[0]), whole, _both(case.tolerance, case.stored))


def refused(read: Callable[[bytes], Any], data: bytes) -> None:
    with pytest.raises(IncompatibleStateError):
        read(data)


def _both(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: one.get(name, 0.0) + other.get(name, 0.0) for name in {*one, *other}}
