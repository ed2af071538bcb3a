"""Rows drawn from the samples in sketches: of the window, uniform, and the same every time."""

from __future__ import annotations

import itertools
import sys
import threading
import time

import numpy as np
import numpy.typing as npt
import pytest

from attributary.schemas.card import Feature, ModelCard
from attributary.schemas.grid import Column
from attributary.schemas.request import StreamWindow
from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.sample import RowSample, hash_integers
from attributary.workers.ondemand.inputs import Inputs
from attributary.workers.ondemand.samples import SampleBook
from attributary.workers.stream.layout import Layout

INPUTS = Inputs(ModelCard(model="m", features=[Feature(name="id"), Feature(name="x")]))
LAYOUT = Layout((Column(feature="id"), Column(feature="x")), ("y", "z"))
PANE = 10_000


class Stream:
    """Rows with an id each, split into sketches as ingest would."""

    def __init__(self, size: int, most: int = 100_000) -> None:
        self.book = SampleBook(most)
        self.size = size

    def add(
        self,
        ids: npt.NDArray[np.int64],
        pane: int,
        partition: int = 0,
        block: int = 0,
        upto: int = 1,
    ) -> None:
        sample = RowSample(self.size, 2, 2)
        X = np.column_stack([ids, ids % 7]).astype(float)
        times = pane + ids % PANE
        sample.update(hash_integers(ids), X, np.column_stack([2.0 * ids, -ids]), times)
        header = SketchHeader("m", "rows", partition, block, pane, 0, upto, len(ids))
        self.book.add(header, sample)

    def draw(self, **window: int | float) -> npt.NDArray[np.int64]:
        found = self.book.draw(StreamWindow(**{"rows": 1000, **window}), INPUTS, {0: LAYOUT})
        assert found.X.shape[1] == 2
        assert found.Y.shape == (len(found.X), 0)
        return found.X[:, 0].astype(int)


def smallest(ids: npt.NDArray[np.int64], count: int) -> list[int]:
    """The ids of the smallest hashes, which a uniform sample must be."""
    return ids[np.argsort(hash_integers(ids))][:count].tolist()


def test_small_panes_are_drawn_whole() -> None:
    stream = Stream(50)
    stream.add(np.arange(10), 0)
    stream.add(np.arange(10, 30), PANE, partition=1)
    assert stream.draw().tolist() == smallest(np.arange(30), 30)
    assert stream.draw(rows=7).tolist() == smallest(np.arange(30), 7)


def test_partitions_and_blocks_of_unequal_size_make_one_uniform_sample() -> None:
    stream = Stream(40)
    large, small = np.arange(5000), np.arange(5000, 5100)
    stream.add(large, 0)
    stream.add(small, 0, partition=1)
    drawn = stream.draw()
    every = np.arange(5100)
    assert len(drawn) >= 40
    assert drawn.tolist() == smallest(every, len(drawn)), "the smallest hashes of all rows"
    assert abs((drawn < 5000).mean() - 5000 / 5100) < 0.1, "not half of each"


def test_a_row_that_was_counted_twice_comes_once() -> None:
    stream = Stream(50)
    stream.add(np.arange(10), 0)
    stream.add(np.arange(5, 15), 0, block=8192)
    assert sorted(stream.draw().tolist()) == list(range(15))


def test_the_sketch_that_counts_more_replaces_the_other() -> None:
    stream = Stream(50)
    stream.add(np.arange(10), 0, upto=10)
    stream.add(np.arange(3), 0, upto=3)
    assert len(stream.draw()) == 10
    stream.add(np.arange(20), 0, upto=20)
    assert len(stream.draw()) == 20


def test_the_window_is_by_event_time() -> None:
    stream = Stream(1000)
    for pane in range(3):
        stream.add(np.arange(pane * PANE, pane * PANE + 100), pane * PANE)
    assert sorted(stream.draw(start=PANE, end=2 * PANE)) == list(range(PANE, PANE + 100))
    assert sorted(stream.draw(start=PANE + 50, end=2 * PANE + 10)) == [
        *range(PANE + 50, PANE + 100),
        *range(2 * PANE, 2 * PANE + 10),
    ]
    assert sorted(stream.draw(seconds=0.02)) == list(range(2 * PANE + 80, 2 * PANE + 100))
    assert stream.draw(end=0).tolist() == []
    assert stream.draw(start=9 * PANE).tolist() == []


def test_memory_is_bounded_by_forgetting_the_oldest_panes() -> None:
    stream = Stream(100, most=250)
    for pane in range(6):
        stream.add(np.arange(pane * 100, pane * 100 + 100), pane * PANE)
    drawn = stream.draw()
    assert drawn.min() >= 400
    assert len(drawn) == 200


def test_rows_of_an_epoch_that_is_not_known_are_left_out() -> None:
    stream = Stream(50)
    stream.add(np.arange(10), 0)
    assert len(stream.book.draw(StreamWindow(), INPUTS, {1: LAYOUT}).X) == 0


def test_outputs_come_by_name_and_times_in_order() -> None:
    stream = Stream(50)
    stream.add(np.arange(20), 0)
    stream.add(np.arange(20, 40), PANE, partition=1)
    found = stream.book.draw(StreamWindow(rows=30), INPUTS, {0: LAYOUT}, ("z", "y", "new"))
    assert found.Y.shape == (30, 3)
    np.testing.assert_array_equal(found.Y[:, 0], -found.X[:, 0])
    np.testing.assert_array_equal(found.Y[:, 1], 2 * found.X[:, 0])
    assert np.isnan(found.Y[:, 2]).all()
    ordered = found.by_time()
    assert sorted(ordered.X[:, 0].tolist()) == sorted(found.X[:, 0].tolist())
    times = ordered.event_time
    assert (np.diff(times) >= 0).all()
    expected = np.where(ordered.X[:, 0] < 20, 0, PANE) + ordered.X[:, 0] % PANE
    np.testing.assert_array_equal(times, expected)
    np.testing.assert_array_equal(ordered.Y[:, 1], 2 * ordered.X[:, 0])


@pytest.mark.parametrize("rows", [1, 5, 100])
def test_fewer_rows_are_the_first_of_more(rows: int) -> None:
    stream = Stream(30)
    for pane in range(4):
        stream.add(np.arange(pane * 1000, pane * 1000 + 200), pane * PANE)
    assert stream.draw(rows=rows).tolist() == stream.draw().tolist()[:rows]


def test_rows_are_drawn_while_panes_come_and_go() -> None:
    stream = Stream(50, most=500)
    stream.add(np.arange(50), 0)
    stop = threading.Event()
    added = []

    def add() -> None:
        for pane in itertools.count(1):
            if stop.is_set():
                return
            stream.add(np.arange(50), pane * PANE)
            added.append(pane)

    thread = threading.Thread(target=add)
    thread.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        deadline = time.monotonic() + 20
        while len(added) < 1000 and time.monotonic() < deadline:
            assert len(stream.draw()) == 50
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert len(added) >= 1000
