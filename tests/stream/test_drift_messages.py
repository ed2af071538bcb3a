"""What merge publishes of a window: attributions against the batch, and drift against references."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import numpy.typing as npt
import pytest
from msgspec.structs import replace
from streams import card, layout

from attributary.schemas.attribution import Accounting, Window, WindowAttribution, WindowDrift
from attributary.schemas.card import Feature
from attributary.workers.maths.cir import cir
from attributary.workers.maths.grid import Grid
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.window import WindowState
from attributary.workers.stream.drift import DriftBook
from attributary.workers.stream.due import Due
from attributary.workers.stream.lightweight import Tally
from attributary.workers.stream.messages import attribution_messages
from attributary.workers.stream.snapshot_state import DriftState

Floats = npt.NDArray[np.float64]
MINUTE = 60_000
LAYOUT = layout(
    card(
        Feature(name="x0", group="g"),
        Feature(name="x1", group="g"),
        Feature(name="k", kind="categorical", levels=["a"]),
        outputs=["p", "q"],
    )
)
ACCOUNTING = Accounting(
    rows=5, rows_accepted=5, rows_rejected={}, rows_late=0, offsets={}, duplicates=0, gaps=0
)


def rows(count: int, seed: int, shift: float = 0.0, sign: float = 1.0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((count, 2)) + shift
    level = (rng.random(count) < 0.3).astype(np.float64)
    X = np.column_stack([x, level, 1 - level])
    p = sign * x[:, 0] - 0.5 * x[:, 1] + 2 * level + rng.standard_normal(count)
    return X, np.column_stack([p, -p])


def state(X: Floats, Y: Floats) -> WindowState:
    pane = PaneSketch(Grid.from_rows(*rows(2000, seed=99)), blocks=LAYOUT.groups)
    pane.update(X, Y)
    return WindowState.of(pane)


def due(start: int, X: Floats, Y: Floats, spec: int = 0) -> Due:
    window = Window(kind="tumbling", start=start * MINUTE, end=(start + 1) * MINUTE, seconds=60)
    return Due(spec, window, state(X, Y), Tally(Counter({1.0: len(X)})), final=True)


def messages(found: WindowState, profiles: int = 50) -> list[WindowAttribution]:
    window = Window(kind="lifetime", start=0, end=MINUTE)
    return list(
        attribution_messages(
            "m",
            LAYOUT,
            found.evaluate(LAYOUT.groups),
            window,
            ACCOUNTING,
            revision=ACCOUNTING.rows,
            final=False,
            watermark=None,
            computed_at=0,
            profiles=profiles,
            agreements=[None, None],
        )
    )


def test_messages_hold_the_scores_of_the_batch_for_features_and_groups() -> None:
    X, Y = rows(3000, seed=1)
    batch = cir(X, Y, groups=LAYOUT.groups)
    p, q = messages(state(X, Y))
    assert (p.output, q.output) == ("p", "q")
    for output, message in enumerate((p, q)):
        assert [f.rank for f in message.features] == [1, 2, 3, 4]
        lows = [f.strength_low for f in message.features]
        assert lows == sorted(lows, reverse=True)
        for index, column in enumerate(LAYOUT.columns):
            (feature,) = [f for f in message.features if f.name == column.name]
            assert feature.score == pytest.approx(batch.score[output, index], abs=1e-3)
            assert feature.direction == np.sign(batch.score[output, index] - 0.5)
            low, high = feature.interval
            assert low <= feature.score <= high
        for name in ("g", "k"):
            (group,) = [g for g in message.groups if g.name == name]
            # Its members are scaled by interquartile ranges, and those come from digests.
            assert group.score == pytest.approx(batch.blocks[name][output], abs=3e-3)
    directions = [{f.name: f.direction for f in message.features} for message in (p, q)]
    assert directions[0] == {name: -sign for name, sign in directions[1].items()}


def test_profiles_come_with_the_top_features_only() -> None:
    (message, _) = messages(state(*rows(500, seed=2)), profiles=2)
    assert [f.profile is not None for f in message.features] == [True, True, False, False]
    profile = message.features[0].profile
    assert profile is not None
    assert len(profile.mean) == len(profile.edges) + 1 == len(profile.rows)
    assert sum(profile.rows) == pytest.approx(500)


def test_missing_rates_quartiles_and_effects_are_those_of_the_rows() -> None:
    X, Y = rows(800, seed=3)
    X[::4, 0] = np.nan
    (message, _) = messages(state(X, Y))
    (feature,) = [f for f in message.features if f.name == "x0"]
    assert feature.missing == 0.25
    assert feature.quartiles is not None
    known = X[~np.isnan(X[:, 0]), 0]
    np.testing.assert_allclose(
        [np.mean(known <= q) for q in feature.quartiles], [0.25, 0.5, 0.75], atol=0.01
    )
    low, high = np.quantile(known, [0.25, 0.75])
    expected = Y[X[:, 0] >= high, 0].mean() - Y[X[:, 0] <= low, 0].mean()
    assert feature.effect == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(
    ("X", "Y"),
    [
        (np.full((9, 4), np.nan), np.ones((9, 2))),
        (np.ones((9, 4)), np.full((9, 2), np.nan)),
        (np.full((9, 4), np.inf), np.full((9, 2), -np.inf)),
        (np.outer([1, -1] * 4, [1e308] * 4), np.outer([1, -1] * 4, [1e308] * 2)),
        (np.zeros((1, 4)), np.zeros((1, 2))),
        (np.full((5, 4), 5e-324), np.full((5, 2), 5e-324)),
    ],
)
def test_degenerate_windows_make_messages_that_can_be_read(X: Floats, Y: Floats) -> None:
    for message in messages(state(X, Y)):
        again = WindowAttribution.from_bytes(message.to_bytes())
        assert again.model_dump() == message.model_dump()
        assert all(0 <= feature.score <= 1 for feature in again.features)
        assert all(math.isfinite(feature.effective_rows) for feature in again.features)
    book = DriftBook(LAYOUT)
    for index, window in enumerate((due(0, *rows(50, seed=1)), due(1, X, Y), due(2, X, Y))):
        found = list(book.compare("m", window, window.state.evaluate(LAYOUT.groups), 0, 1))
        assert len(found) == (0 if index == 0 else 4)
        for drift in found:
            assert WindowDrift.from_bytes(drift.to_bytes()).model_dump() == drift.model_dump()


def _compare(book: DriftBook, window: Due, oldest: int = 0) -> dict[str, WindowDrift]:
    found = book.compare("m", window, window.state.evaluate(LAYOUT.groups), oldest, now=7)
    return {message.reference: message for message in found if message.output == "p"}


def test_a_shift_is_seen_against_the_first_window_and_only_once_against_the_preceding() -> None:
    book = DriftBook(LAYOUT)
    assert _compare(book, due(0, *rows(2000, seed=1))) == {}
    calm = _compare(book, due(1, *rows(2000, seed=2)))
    shifted = _compare(book, due(2, *rows(2000, seed=3, shift=1.0)))
    stays = _compare(book, due(3, *rows(2000, seed=4, shift=1.0)))
    for found, baseline_moved, preceding_moved in (
        (calm, False, False),
        (shifted, True, True),
        (stays, True, False),
    ):
        assert set(found) == {"baseline", "preceding"}
        for kind, moved in (("baseline", baseline_moved), ("preceding", preceding_moved)):
            column = next(c for c in found[kind].features if c.name == "x0")
            assert column.psi is not None
            assert column.psi_critical is not None
            assert column.ks is not None
            assert column.ks_critical is not None
            assert (column.psi > 3 * column.psi_critical) is moved
            assert (column.ks > 2 * column.ks_critical) is moved
            assert column.wasserstein == pytest.approx(1.0 if moved else 0.0, abs=0.12)
    reference = stays["baseline"].reference_window
    assert reference is not None
    assert reference.start == 0
    assert stays["baseline"].reference_rows == 2000


def test_the_scores_own_drift_is_seen_where_no_column_moves() -> None:
    book = DriftBook(LAYOUT)
    _compare(book, due(0, *rows(2000, seed=1)))
    same = _compare(book, due(1, *rows(2000, seed=2)))["baseline"]
    turned = _compare(book, due(2, *rows(2000, seed=3, sign=-1.0)))["baseline"]
    assert same.attributions.kendall == pytest.approx(1.0)
    assert turned.attributions.kendall is not None
    assert turned.attributions.kendall < 0.5
    assert same.attributions.procrustes is not None
    assert turned.attributions.procrustes is not None
    assert turned.attributions.procrustes > 5 * same.attributions.procrustes
    assert (same.attributions.change_low, same.attributions.changed) == (0.0, None)
    assert turned.attributions.changed == "x0"
    one, other = cir(*rows(2000, seed=1)), cir(*rows(2000, seed=3, sign=-1.0))
    # Four columns, so Bonferroni's quantile is that of 0.05 / 8.
    least = abs(other.score[0, 0] - one.score[0, 0]) - 2.4977054744 * math.hypot(
        one.stderr[0, 0], other.stderr[0, 0]
    )
    assert turned.attributions.change_low == pytest.approx(2 * least, abs=5e-3)
    # A snapshot keeps the errors; an older one has none, and says nothing of a change.
    kept = book.state()
    plain = replace(kept.baselines[0], stderr=b"")
    for state_, known in ((kept, True), (DriftState({0: plain}, {}), False)):
        again = DriftBook(LAYOUT)
        again.restore(state_)
        found = _compare(again, due(3, *rows(2000, seed=3, sign=-1.0)))["baseline"].attributions
        assert found.change_low == (turned.attributions.change_low if known else None)


def test_a_window_that_began_before_the_first_row_is_no_baseline() -> None:
    book = DriftBook(LAYOUT)
    assert _compare(book, due(0, *rows(50, seed=1)), oldest=MINUTE // 2) == {}
    assert set(_compare(book, due(1, *rows(50, seed=2)), oldest=MINUTE // 2)) == {"preceding"}
    found = _compare(book, due(2, *rows(50, seed=3)), oldest=MINUTE // 2)
    window = found["baseline"].reference_window
    assert window is not None
    assert window.start == MINUTE


def test_a_revised_baseline_replaces_itself_and_is_not_compared_with_itself() -> None:
    book = DriftBook(LAYOUT)
    _compare(book, due(0, *rows(50, seed=1)))
    assert _compare(book, due(0, *rows(80, seed=1))) == {}
    assert _compare(book, due(1, *rows(60, seed=2)))["baseline"].reference_rows == 80


def test_kinds_of_windows_have_references_of_their_own() -> None:
    book = DriftBook(LAYOUT)
    _compare(book, due(0, *rows(50, seed=1)))
    assert _compare(book, due(1, *rows(50, seed=2), spec=1)) == {}
    assert set(_compare(book, due(2, *rows(50, seed=3)))) == {"baseline", "preceding"}


def test_missing_values_that_come_are_reported_with_their_limits() -> None:
    X, Y = rows(1000, seed=1)
    gone, _ = rows(1000, seed=2)
    gone[:200, 1] = np.nan
    book = DriftBook(LAYOUT)
    _compare(book, due(0, X, Y))
    found = _compare(book, due(1, gone, Y))["baseline"]
    column = next(c for c in found.features if c.name == "x1")
    assert column.missing_change == pytest.approx(0.2)
    assert column.missing_change_interval is not None
    low, high = column.missing_change_interval
    assert 0.15 < low < 0.2 < high < 0.25
