"""Grids: from first rows, from a baseline, renewed, too large, and contradicting themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from streams import arrow, card, epoch, grid, record, some_rows, staged

from attributary.schemas.card import Baseline, Feature, ModelCard
from attributary.schemas.errors import Reason
from attributary.schemas.grid import Column, GridRecord
from attributary.schemas.row import Row
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.stream.decode import Staged, decode
from attributary.workers.stream.encode import Refusal
from attributary.workers.stream.epoch import Epoch, cells_for, propose_first, propose_next
from attributary.workers.stream.options import IngestOptions

OPTIONS = IngestOptions(grid_rows=100)
K = Feature(name="k", kind="categorical")


def _refused(of: ModelCard | None, *rows: Staged) -> list[Refusal]:
    found = propose_first("m", of, 0, rows, OPTIONS)
    assert isinstance(found, list), found
    return found


def test_the_first_grid_has_the_quantiles_of_the_rows_as_edges() -> None:
    rows = some_rows(["a", "b"], count=500, outputs=2)
    record_ = grid(card("a", "b", outputs=["p", "q"], pane_seconds=5), rows, number=4)
    assert (record_.epoch, record_.layout, record_.rows, record_.pane_ms) == (4, 4, 500, 5000)
    column = np.array([row.features["b"] for row in rows], dtype=np.float64)
    np.testing.assert_allclose(record_.x_edges[1], np.quantile(column, np.arange(1, 16) / 16))
    low, high = np.quantile(column, [0.25, 0.75])
    assert record_.x_reference[1] == pytest.approx((low + high) / 2)
    assert Epoch.from_record(GridRecord.from_bytes(record_.to_bytes())).grid == (
        Epoch.from_record(record_).grid
    )


def test_without_a_card_names_kinds_and_outputs_are_learnt_from_rows_and_arrow() -> None:
    data = arrow({"k": ["x", None], "n": [1.0, 2.0], "y": [1.0, 2.0]})
    ((_, taken),) = decode(record(data), OPTIONS).staged
    found = propose_first("m", None, 0, [taken, *staged([Row({"z": 1.0}, {"y": 2.0})])], OPTIONS)
    assert isinstance(found, GridRecord)
    assert [c.name for c in found.columns] == ["k=x", "k=(other)", "n", "z"]
    assert found.outputs == ["y"]


def test_rows_of_which_none_fits_are_refused_each_for_its_own_reason() -> None:
    rows = [Row({"a": "x"}, 1.0), Row({"a": 1.0}, [1.0, 2.0]), Row({"a": 1.0}, 1.0, time="?")]
    found = _refused(card("a"), *staged(rows))
    assert {r.record.offset: r.reason for r in found} == {
        0: Reason.WRONG_TYPE,
        1: Reason.OUTPUTS_MISSING,
        2: Reason.BAD_TIME,
    }
    assert sum(r.rows for r in found) == 3


@pytest.mark.parametrize(
    ("of", "rows"),
    [
        (None, [Row({}, 1.0)] * 3),
        (None, [Row({"a": 1.0}, {})]),
        (None, [Row({f"a{i}": 1.0 for i in range(2001)}, 1.0)]),
        (None, [Row({"a": 1.0}, [1.0] * 101)]),
        (card(*(f"a{i}" for i in range(2001))), [Row({"a0": 1.0}, 1.0)]),
        # Within both limits, and too large for a record all the same.
        (None, [Row({f"a{i}": 1.0 for i in range(1000)}, [1.0] * 40)]),
    ],
)
def test_a_model_that_is_too_wide_is_refused(of: ModelCard | None, rows: list[Row]) -> None:
    found = _refused(of, *staged(rows))
    assert {r.reason for r in found} == {Reason.TOO_LARGE}
    assert sum(r.rows for r in found) == len(rows)


@pytest.mark.parametrize(
    ("columns", "outputs", "samples"),
    [(2000, 1, 0), (500, 10, 10_000), (100, 100, 10), (60, 1, 10_000)],
)
def test_what_is_not_refused_makes_a_sketch_that_a_record_can_hold(
    columns: int, outputs: int, samples: int
) -> None:
    names = [f"a{i}" for i in range(columns)]
    made = Epoch.from_record(
        grid(
            ModelCard(model="m", samples=samples),
            some_rows(names, outputs=outputs),
            options=OPTIONS,
        )
    )
    pane = PaneSketch(made.grid, sample_size=made.record.samples)
    rng = np.random.default_rng(1)
    n = max(2048, made.record.samples)
    pane.update(
        rng.standard_normal((n, columns)),
        rng.standard_normal((n, outputs)),
        rng.random(n) + 0.5,
        rng.integers(0, 2**63, n).astype(np.uint64),
        np.arange(n),
    )
    assert len(pane.to_bytes()) < 8 * 2**20 - 100_000


def test_cells_shrink_with_the_pairs() -> None:
    assert [cells_for(*shape) for shape in ((10, 1), (512, 1), (2000, 1), (200, 100))] == [
        16,
        16,
        4,
        4,
    ]


def test_a_baseline_gives_the_edges_and_is_enough_for_a_grid() -> None:
    base = Baseline(x_edges=[[0.0, 1.0, 2.0]], y_edges=[[-1.0, 0.0, 1.0]], rows=77)
    found = grid(card("a", baseline=base), some_rows(["a"], count=1))
    assert (found.x_edges, found.y_edges, found.rows) == (base.x_edges, base.y_edges, 77)
    assert (found.x_reference, found.y_reference) == ([1.0], [0.0])


@pytest.mark.parametrize(
    ("x_edges", "y_edges"),
    [
        ([[0.0, 1.0]], [[0.0, 1.0], [0.0, 1.0]]),
        ([[0.0, 1.0], [0.0, 1.0]], [[0.0, 1.0]]),
        ([], [[0.0, 1.0]]),
        ([[1.0, 0.0]], [[0.0, 1.0]]),
        ([[0.0, math.nan]], [[0.0, 1.0]]),
        ([[0.0, math.inf]], [[0.0, 1.0]]),
        ([[]], [[]]),
        ([[0.0, 1.0]], [[0.0, 1.0, 2.0]]),
        ([[float(i) for i in range(2000)]], [[float(i) for i in range(2000)]]),
    ],
)
def test_a_baseline_that_cannot_work_refuses_the_rows(x_edges: Any, y_edges: Any) -> None:
    base = Baseline.model_construct(x_edges=x_edges, y_edges=y_edges, rows=1)
    of = card("a").model_copy(update={"baseline": base})
    (refused,) = _refused(of, *staged(some_rows("a", count=1)))
    assert refused.reason in (Reason.WRONG_TYPE, Reason.TOO_LARGE)


def test_a_ragged_baseline_refuses_the_rows() -> None:
    base = Baseline(x_edges=[[0.0, 1.0], [0.0]], y_edges=[[0.0, 1.0]], rows=1)
    (refused,) = _refused(card("a", "b", baseline=base), *staged(some_rows("ab", count=1)))
    assert refused.reason == Reason.WRONG_TYPE


def test_columns_without_a_finite_value_and_constant_ones_have_a_grid() -> None:
    rows = [
        Row({"nan": None, "inf": math.inf, "c": 5.0, "big": 1e308 * (-1) ** i}, [None])
        for i in range(40)
    ]
    made = Epoch.from_record(grid(card("nan", "inf", "c", "big"), rows))
    pane = PaneSketch(made.grid)
    pane.update(np.array([[np.nan, np.inf, 5.0, -1e308]]), np.array([[np.nan]]))
    assert PaneSketch.from_bytes(pane.to_bytes()).rows == 1


def _pane(made: Epoch, X: Any) -> PaneSketch:
    pane = PaneSketch(made.grid)
    pane.update(X, X[:, :1])
    return pane


def test_rows_that_left_the_grid_renew_it_on_the_same_layout() -> None:
    made = Epoch.from_record(grid(card("a"), some_rows("a", count=200), number=3))
    rng = np.random.default_rng(2)
    near, far = rng.standard_normal((400, 1)), rng.standard_normal((400, 1)) + 8
    assert propose_next(made, [_pane(made, near)], OPTIONS) is None
    assert propose_next(made, [], OPTIONS) is None
    renewed = propose_next(made, [_pane(made, far[:200]), _pane(made, far[200:])], OPTIONS)
    assert renewed is not None
    assert (renewed.epoch, renewed.layout, renewed.rows) == (4, 3, 400)
    # Sampled: the values at 1/16 ... 15/16 of 400 rows, from digests, to within a row's rank or two.
    ranks = np.searchsorted(np.sort(far[:, 0]), renewed.x_edges[0]) / 400
    np.testing.assert_allclose(ranks, np.arange(1, 16) / 16, atol=0.01)
    assert Epoch.from_record(renewed).continues(made)


def test_a_grid_of_few_rows_is_renewed_once_there_are_enough() -> None:
    made = Epoch.from_record(grid(card("a"), some_rows("a", count=20)))
    X = np.random.default_rng(0).standard_normal((100, 1))
    assert propose_next(made, [_pane(made, X[:99])], OPTIONS) is None
    renewed = propose_next(made, [_pane(made, X)], OPTIONS)
    assert renewed is not None
    assert renewed.rows == 100


def test_a_renewed_grid_keeps_what_sketches_need_in_common() -> None:
    """Samples and digests of another size cannot be merged with those of the layout so far."""
    made = epoch(card("a", samples=5), options=OPTIONS)
    X = np.random.default_rng(0).standard_normal((200, 1)) + 9
    pane = PaneSketch(made.grid, sample_size=5)
    pane.update(X, X, hashes=np.arange(200, dtype=np.uint64), event_times=np.arange(200))
    renewed = propose_next(made, [pane], IngestOptions(grid_rows=100, compression=500))
    assert renewed is not None
    assert (renewed.samples, renewed.compression, renewed.pane_ms) == (5, 200, 10_000)


@pytest.mark.parametrize(
    ("changes", "serves"),
    [
        ({}, True),
        ({"strict": True}, True),
        ({"samples": 9}, True),
        ({"windows": [{"kind": "lifetime"}]}, True),
        ({"allowed_lateness_seconds": 1.0}, True),
        ({"pane_seconds": 5.0}, False),
        ({"outputs": ["z"]}, False),
        ({"outputs": []}, True),
        ({"features": []}, True),
        ({"features": [Feature(name="a")]}, False),
        ({"features": [K, Feature(name="a")]}, False),
        ({"features": [Feature(name="a", group="g"), K]}, False),
        ({"features": [Feature(name="a"), Feature(name="k", kind="token")]}, True),
        (
            {"features": [Feature(name="a"), Feature(name="k", kind="categorical", levels=["x"])]},
            False,
        ),
        (
            {
                "features": [
                    Feature(name="a"),
                    Feature(name="k", kind="categorical", levels=["x", "z"]),
                ]
            },
            True,
        ),
    ],
)
def test_an_epoch_serves_the_cards_that_make_its_columns(
    changes: dict[str, Any], serves: bool
) -> None:
    of = card("a", K)
    rows = [Row({"a": 1.0, "k": level}, 1.0) for level in ("z", "x", None)]
    made = Epoch.from_record(grid(of, rows))
    changed = ModelCard.model_validate({**of.model_dump(), **changes})
    assert made.serves(changed) is serves
    assert made.serves(None)


@pytest.mark.parametrize(
    "changes",
    [
        {"x_edges": [[0.0]]},
        {"y_edges": []},
        {"x_edges": [[0.0, 1.0], [0.0]]},
        {"x_edges": [[1.0, 0.0], [0.0, 1.0]], "y_edges": [[0.0, 1.0]]},
        {"x_reference": []},
        {"x_reference": [math.nan, 0.0]},
        {"y_reference": [0.0, 0.0]},
        {"columns": [Column(feature="a")]},
        {"outputs": []},
        {
            "columns": [
                Column(feature="a"),
                Column(feature="k", level="x", categorical=True),
            ]
        },
    ],
)
def test_a_grid_that_contradicts_itself_is_a_value_error(changes: dict[str, Any]) -> None:
    good = grid(card("a", "b"), some_rows("ab"))
    with pytest.raises(ValueError, match=r"\w"):
        Epoch.from_record(good.model_copy(update=changes))


def test_strictness_changes_the_layout_and_not_the_grid() -> None:
    made = epoch(card("a"))
    strict = made.with_strict(True)
    assert strict.layout.strict
    assert strict.grid is made.grid
    assert made.with_strict(False) is made
