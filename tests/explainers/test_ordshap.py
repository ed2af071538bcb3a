"""OrdShap against closed forms and brute force."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np
import pytest

from attributary.workers.explainers.batched import ModelOutputError
from attributary.workers.explainers.masks import Background
from attributary.workers.explainers.ordshap import OrdShapResult, ordshap
from attributary.workers.explainers.ordshap_least_squares import fit
from attributary.workers.explainers.permutation_design import Design
from attributary.workers.explainers.positions import Positions

Array = np.ndarray[Any, np.dtype[Any]]
Game = Callable[[Array], Array]

HAT, BAG, LEFT, RIGHT = 1, 2, 3, 4


def bag_game(batch: Array) -> Array:
    """A hat counts 3 and a left-right pair of gloves 2, only after a bag; 0 is nothing."""
    scores = []
    for row in batch:
        bags = np.flatnonzero(row == BAG)
        after = row[bags[0] :] if len(bags) else row[:0]
        pairs = min((after == LEFT).sum(), (after == RIGHT).sum())
        scores.append(3.0 * (after == HAT).sum() + 2.0 * pairs)
    return np.array(scores)


def place_game(batch: Array) -> Array:
    """Σ a_i + b_i (place - 2.5), places from 1, of tokens 1..4; 0 is nothing."""
    a = np.array([0.0, 1.0, -1.0, 2.0, 0.0])
    b = np.array([0.0, 0.5, 0.25, 0.0, -0.75])
    total: Array = (a[batch] + b[batch] * (np.arange(1, 5) - 2.5)).sum(axis=1)
    return total


def random_game(d: int, seed: int) -> Game:
    """Order, presence and place of tokens 1..d, tied together by a sine; 0 is nothing."""
    rng = np.random.default_rng(seed)
    weight, before = rng.normal(size=(d, d + 1)), rng.normal(size=(d + 1, d + 1))
    before[0] = before[:, 0] = 0.0

    def game(batch: Array) -> Array:
        total = weight[np.arange(d), batch].sum(axis=1)
        for p, q in itertools.combinations(range(d), 2):
            total += before[batch[:, p], batch[:, q]]
        return np.sin(total) + 0.3 * total

    return game


def brute_force(game: Game, d: int) -> Array:
    """Return γ (d, d) straight from the definition, one permutation and one coalition at a time."""
    gamma, count = np.zeros((d, d)), np.zeros((d, d))
    for sigma in itertools.permutations(range(d)):
        sets = [set(s) for k in range(d + 1) for s in itertools.combinations(range(d), k)]
        rows = np.array([[i + 1 if i in s else 0 for i in sigma] for s in sets])
        value = {frozenset(s): v for s, v in zip(sets, game(rows), strict=True)}
        for i in range(d):
            phi = 0.0
            for s in sets:
                if i not in s:
                    gain = value[frozenset(s | {i})] - value[frozenset(s)]
                    phi += gain / (d * comb(d - 1, len(s)))
            gamma[i, sigma.index(i)] += phi
            count[i, sigma.index(i)] += 1
    assert (count > 0).all()
    return gamma / count


def slopes(gamma: Array) -> Array:
    return np.array([np.polyfit(np.arange(len(row)), row, 1)[0] for row in gamma])


def exact(game: Game, x: Any, **keywords: Any) -> OrdShapResult:
    return ordshap(game, x, mask=0, method="exact", **keywords)


def gamma_of(result: OrdShapResult) -> Array:
    assert result.gamma is not None
    return result.gamma


def test_hats_after_a_bag() -> None:
    found = exact(bag_game, [HAT, HAT, HAT, BAG, RIGHT, RIGHT])
    hat = [0, 0.3, 0.6, 0.9, 1.2, 1.5]
    bag = [4.5, 3.6, 2.7, 1.8, 0.9, 0]
    expected = [hat, hat, hat, bag, [0.0] * 6, [0.0] * 6]
    np.testing.assert_allclose(gamma_of(found), expected, atol=1e-12)
    np.testing.assert_allclose(found.value_importance, [0.75] * 3 + [2.25, 0, 0], atol=1e-12)
    np.testing.assert_allclose(found.position_importance, [0.3] * 3 + [-0.9, 0, 0], atol=1e-12)
    assert found.completeness_gap < 1e-12
    assert found.total == pytest.approx(4.5)
    # Three equal hats and two equal gloves: far fewer inputs than places of coalitions.
    assert found.model_calls == len(
        {
            tuple(t if k else 0 for t, k in zip(p, s, strict=True))
            for p in set(itertools.permutations([HAT, HAT, HAT, BAG, RIGHT, RIGHT]))
            for s in itertools.product([0, 1], repeat=6)
        }
    )


def test_bag_hat_and_a_pair_of_gloves() -> None:
    found = exact(bag_game, [BAG, HAT, LEFT, RIGHT])
    glove = [0, 2 / 9, 1 / 3, 1 / 3]
    expected = [[13 / 6, 11 / 9, 0.5, 0], [0, 0.5, 1, 1.5], glove, glove]
    np.testing.assert_allclose(gamma_of(found), expected, atol=1e-12)
    np.testing.assert_allclose(found.value_importance, [35 / 36, 3 / 4, 2 / 9, 2 / 9], atol=1e-12)
    np.testing.assert_allclose(found.position_importance, [-13 / 18, 0.5, 1 / 9, 1 / 9], atol=1e-12)


def test_additive_game_and_its_sigmoid() -> None:
    found = exact(place_game, [1, 2, 3, 4])
    np.testing.assert_allclose(found.value_importance, [1, -1, 2, 0], atol=1e-12)
    np.testing.assert_allclose(found.position_importance, [0.5, 0.25, 0, -0.75], atol=1e-12)
    found = exact(lambda batch: 1 / (1 + np.exp(-place_game(batch))), [1, 2, 3, 4])
    np.testing.assert_allclose(
        found.value_importance, [0.16096943, -0.16309465, 0.34666163, -0.01765112], atol=5e-9
    )
    np.testing.assert_allclose(
        found.position_importance, [0.06939027, 0.04354063, 0.00062967, -0.12274108], atol=5e-9
    )
    assert found.value_importance.sum() == pytest.approx(0.3268852891, abs=5e-11)


@pytest.mark.parametrize("d", [4, 5, 6])
def test_exact_is_brute_force(d: int) -> None:
    game = random_game(d, d)
    gamma = brute_force(game, d)
    found = exact(game, np.arange(1, d + 1))
    np.testing.assert_allclose(gamma_of(found), gamma, atol=1e-9)
    np.testing.assert_allclose(found.value_importance, gamma.mean(axis=1), atol=1e-9)
    np.testing.assert_allclose(found.position_importance, slopes(gamma), atol=1e-9)
    assert (found.value_stderr == 0.0).all()
    assert found.completeness_gap < 1e-12


@pytest.mark.parametrize("method", ["exact", "permutation", "least_squares"])
def test_a_feature_is_told_by_its_slot_not_by_the_permutation(method: str) -> None:
    """σ = (2, 0, 3, 1) puts features 0..3 at slots 1, 3, 0, 2: a mix-up of σ and σ⁻¹ would show.

    The model pays 1 for that one arrangement and for those of its pairs that are present.
    """
    slot = np.array([1, 3, 0, 2])
    assert np.argsort([2, 0, 3, 1]).tolist() == slot.tolist()

    def game(batch: Array) -> Array:
        total = np.zeros(len(batch))
        for token, at in enumerate(slot, start=1):
            total += batch[:, at] == token
        return total

    found = ordshap(
        game, [1, 2, 3, 4], mask=0, method=method, n_permutations=4_000, n_subsets=20_000
    )
    gamma = np.zeros((4, 4))
    gamma[np.arange(4), slot] = 1.0
    tolerance = {"exact": 1e-12, "permutation": 1e-6, "least_squares": 0.02}[method]
    if found.gamma is not None:
        np.testing.assert_allclose(found.gamma, gamma, atol=tolerance)
    np.testing.assert_allclose(found.value_importance, 0.25, atol=tolerance)
    np.testing.assert_allclose(found.position_importance, slopes(gamma), atol=tolerance)


def test_least_squares_at_full_enumeration() -> None:
    """Every coalition as often as the Shapley kernel weighs it, under every permutation."""
    x = np.array([HAT, HAT, HAT, BAG, RIGHT, RIGHT])
    order = np.array(list(itertools.permutations(range(6))))
    times = {1: 12, 2: 3, 3: 2, 4: 3, 5: 12}  # in units of 1/360
    subsets = np.array(
        [
            np.isin(np.arange(6), s)
            for size, often in times.items()
            for s in list(itertools.combinations(range(6), size)) * often
        ]
    )
    member, turn = np.tile(subsets, (720, 1)), np.repeat(np.arange(720), len(subsets))
    shown = np.where(np.take_along_axis(member, order[turn], axis=1), x[order[turn]], 0)
    rows, back = np.unique(shown, axis=0, return_inverse=True)
    values = bag_game(rows)[back.ravel()]
    found = fit(member, values, order, turn, bag_game(x[order]), Positions.of(np.arange(6.0)))
    np.testing.assert_allclose(found.alpha, [0.75] * 3 + [2.25, 0, 0], atol=1e-9)
    np.testing.assert_allclose(found.beta, [77 / 254] * 3 + [-231 / 254, 0, 0], atol=1e-9)


def test_least_squares_by_its_own_standard_error() -> None:
    x = [HAT, HAT, HAT, BAG, RIGHT, RIGHT]
    limit = np.array([[0.75] * 3 + [2.25, 0, 0], [77 / 254] * 3 + [-231 / 254, 0, 0]])
    z = []
    for seed in range(60):
        found = ordshap(
            bag_game,
            x,
            mask=0,
            method="least_squares",
            n_permutations=200,
            n_subsets=400,
            rng=seed,
        )
        assert found.gamma is None
        assert found.completeness_gap < 1e-12
        z.append(
            [
                (found.value_importance - limit[0]) / found.value_stderr,
                (found.position_importance - limit[1]) / found.position_stderr,
            ]
        )
    assert ((np.abs(z) < 1.96).mean(axis=(0, 2)) > 0.85).all()
    assert 0.7 < np.std(z) < 1.3


@pytest.mark.parametrize("units", [5, 6, 7])
def test_permutation_comes_close_with_far_fewer_calls(units: int) -> None:
    game, x = random_game(units, 40 + units), np.arange(1, units + 1)
    truth = exact(game, x)
    found = ordshap(game, x, mask=0, n_permutations=300)
    z = (found.value_importance - truth.value_importance) / found.value_stderr
    assert np.abs(z).max() < 4
    z = (found.position_importance - truth.position_importance) / found.position_stderr
    assert np.abs(z).max() < 4
    assert found.value_stderr.max() < 0.1 * np.abs(truth.value_importance).max()
    np.testing.assert_allclose(gamma_of(found).mean(axis=1), found.value_importance, atol=1e-12)
    np.testing.assert_allclose(slopes(gamma_of(found)), found.position_importance, atol=1e-12)
    assert found.completeness_gap < 1e-12
    rough = np.abs(gamma_of(found) - gamma_of(truth)).max()
    assert rough < 0.5 * np.abs(gamma_of(truth)).max()


def recurrent_game(d: int, seed: int) -> Game:
    """A recurrent network, in which the last places count for most: what makes blocks skewed."""
    rng = np.random.default_rng(seed)
    embedding = np.concatenate([np.zeros((1, 6)), rng.normal(size=(d, 6))])
    kept, out = rng.normal(size=(6, 6)) * 1.1 / np.sqrt(6), rng.normal(size=6)

    def game(batch: Array) -> Array:
        state = np.zeros((len(batch), 6))
        for token in batch.T:
            state = np.tanh(state @ kept + embedding[token])
        return np.asarray(state @ out)

    return game


@pytest.mark.parametrize("asked", [{"n_permutations": 1}, {"n_permutations": 50}])
def test_intervals_cover_and_estimates_are_unbiased(asked: dict[str, Any]) -> None:
    """At the smallest budget, and at a larger one; benchmarks/ordshap_intervals.py has more games."""
    units, repetitions = 6, 100
    game, x = recurrent_game(units, 2), np.arange(1, units + 1)
    truth = exact(game, x)
    # One table of all values, so that the repetitions cost little.
    base = (units + 1) ** np.arange(units)
    every = np.array(list(itertools.product(range(units + 1), repeat=units)))
    table = np.zeros(base.sum() * units + 1)
    table[every @ base] = game(every)
    errors, sizes = [], []
    for seed in range(repetitions):
        found = ordshap(
            lambda batch: table[batch @ base], x, mask=0, batch_size=4_096, rng=seed, **asked
        )
        errors.append(
            [
                found.value_importance - truth.value_importance,
                found.position_importance - truth.position_importance,
            ]
        )
        sizes.append([found.value_stderr, found.position_stderr])
    error, stderr = np.array(errors), np.array(sizes)
    held = (np.abs(error) <= 1.96 * stderr).mean(axis=2)
    # Repetitions are independent, values within one are not.
    doubt = held.std(axis=0, ddof=1) / np.sqrt(repetitions)
    assert (doubt < 0.012).all()
    assert (held.mean(axis=0) > 0.93 - doubt).all(), held.mean(axis=0)
    assert (held.mean(axis=0) < 0.97 + doubt).all(), held.mean(axis=0)
    bias = error.mean(axis=0) / (error.std(axis=0) / np.sqrt(repetitions))
    assert np.abs(bias).max() < 3.7


@pytest.mark.parametrize("units", [1, 2, 3, 5, 6, 7, 8, 9, 20, 32, 33, 50, 150, 999])
def test_no_budget_buys_too_few_blocks(units: int) -> None:
    for permutations in (1, 24, 50, 100, 130, 1_000):
        design = Design.for_budget(units, permutations)
        spacing = -(-units // design.shifts)
        assert design.permutations >= permutations
        assert design.blocks >= (3 if spacing <= 2 else 8)
        assert design.shifts >= (min(units, 4) if spacing <= 2 else 8)
        least = 6 * units if units <= 6 else 3 * (units + 1) if units <= 64 else 128
        assert design.permutations <= max(least, 2 * permutations)


def test_results_do_not_depend_on_the_batch_size_and_repeat_by_seed() -> None:
    game, x = random_game(5, 1), np.arange(1, 6)
    for method in ("permutation", "least_squares", "exact"):
        runs = [
            ordshap(
                game,
                x,
                mask=0,
                method=method,
                n_permutations=12,
                n_subsets=30,
                batch_size=size,
                rng=np.random.default_rng(5),
            )
            for size in (1, 7, 100_000)
        ]
        other = ordshap(game, x, mask=0, method=method, n_permutations=12, n_subsets=30, rng=6)
        for run in runs[1:]:
            for name in ("value_importance", "position_importance", "value_stderr", "gamma"):
                np.testing.assert_array_equal(getattr(run, name), getattr(runs[0], name))
            assert run.model_calls == runs[0].model_calls
        if method != "exact":
            assert (other.value_importance != runs[0].value_importance).any()


def test_every_distinct_input_is_evaluated_once() -> None:
    seen: list[bytes] = []

    def model(batch: Array) -> Array:
        seen.extend(row.tobytes() for row in batch)
        return bag_game(batch)

    found = ordshap(model, [HAT, BAG, HAT, 0, LEFT], mask=0, n_permutations=500, batch_size=13)
    assert len(seen) == len(set(seen)) == found.model_calls
    assert found.value_importance[3] == 0.0


def test_fixed_elements_never_move_and_are_never_masked() -> None:
    rows: list[Array] = []

    def model(batch: Array) -> Array:
        rows.append(batch.copy())
        return bag_game(batch[:, 1:-1])

    x = [90, BAG, HAT, LEFT, RIGHT, 91]
    free = exact(bag_game, x[1:-1])
    for fixed in ((0, 5), (0, -1)):
        found = exact(model, x, fixed=fixed)
        seen = np.concatenate(rows)
        assert (seen[:, 0] == 90).all()
        assert (seen[:, -1] == 91).all()
        np.testing.assert_allclose(gamma_of(found)[1:-1], gamma_of(free), atol=1e-12)
        np.testing.assert_allclose(found.value_importance[1:-1], free.value_importance)
        np.testing.assert_allclose(found.position_importance[1:-1], free.position_importance)
        assert found.value_importance[[0, -1]].tolist() == [0.0, 0.0]
        assert found.movable.tolist() == [False] + [True] * 4 + [False]
        assert found.positions.tolist() == [1, 2, 3, 4]


def test_visits_share_a_place_and_slopes_are_per_unit_of_time() -> None:
    times = np.array([0.0, 0.0, 2.5, 7.0, 7.0])
    game, x = random_game(5, 2), np.arange(1, 6)
    gamma = brute_force(game, 5)
    found = exact(game, x, positions=times)
    visits = np.column_stack([gamma[:, :2].mean(1), gamma[:, 2], gamma[:, 3:].mean(1)])
    np.testing.assert_allclose(gamma_of(found), visits, atol=1e-12)
    assert found.positions.tolist() == [0.0, 2.5, 7.0]
    np.testing.assert_allclose(found.value_importance, gamma.mean(1), atol=1e-12)
    slope = [np.polyfit(times, row, 1)[0] for row in gamma]
    np.testing.assert_allclose(found.position_importance, slope, atol=1e-12)
    sampled = ordshap(game, x, mask=0, positions=times, n_permutations=600)
    z = (sampled.position_importance - slope) / sampled.position_stderr
    assert np.abs(z).max() < 4
    # All at one time: nothing to tell about positions.
    still = ordshap(game, x, mask=0, positions=[3.0] * 5, n_permutations=60)
    assert (still.position_importance == 0.0).all()
    assert gamma_of(still).shape == (5, 1)


def test_groups_move_as_one_and_may_differ_in_length() -> None:
    x = np.array([50, 11, 12, 21, 60, 31, 32, 33, 70])
    groups = [[1, 2], [3], [5, 6, 7]]
    rows: list[Array] = []

    def model(batch: Array) -> Array:
        rows.append(batch.copy())
        places = np.arange(batch.shape[1])
        return np.sin(((batch * (places + 1)) % 17).sum(axis=1))

    def by_hand(sigma: tuple[int, ...], members: set[int]) -> list[int]:
        shown = [[int(x[t]) if i in members else 0 for t in groups[i]] for i in sigma]
        return [50, *shown[0], *shown[1], 60, *shown[2], 70]

    found = exact(model, x, groups=groups)
    seen = {tuple(row) for row in np.concatenate(rows).tolist()}
    sets = [set(s) for k in range(4) for s in itertools.combinations(range(3), k)]
    orders = list(itertools.permutations(range(3)))
    assert seen == {tuple(by_hand(sigma, s)) for sigma in orders for s in sets}
    assert found.model_calls == len(seen)
    gamma = np.zeros((3, 3))
    for sigma in orders:
        value = {frozenset(s): float(model(np.array([by_hand(sigma, s)]))[0]) for s in sets}
        for i in range(3):
            phi = sum(
                (value[frozenset(s | {i})] - value[frozenset(s)]) / (3 * comb(2, len(s)))
                for s in sets
                if i not in s
            )
            gamma[i, sigma.index(i)] += phi / 2
    np.testing.assert_allclose(gamma_of(found), gamma, atol=1e-12)
    held = exact(model, x, groups=groups, fixed=[3])
    assert held.movable.tolist() == [True, False, True]


def test_vectors_and_masks_of_vectors() -> None:
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(5, 3)).astype(np.float32), rng.normal(size=3)
    kinds: set[np.dtype[Any]] = set()

    def model(batch: Array) -> Array:
        kinds.add(batch.dtype)
        score = (batch @ weight).cumsum(axis=1)
        return np.tanh(score).sum(axis=1)

    mask = np.array([0.5, -0.25, 1.0], dtype=np.float32)
    found = ordshap(model, x, mask=mask, method="exact")
    stack = np.concatenate([mask[None], x])
    np.testing.assert_allclose(
        gamma_of(found), brute_force(lambda batch: model(stack[batch]), 5), atol=1e-6
    )
    assert kinds == {np.dtype(np.float32)}
    zero = ordshap(model, x, mask=0, method="exact")
    assert np.abs(zero.value_importance - found.value_importance).max() > 1e-3
    assert kinds == {np.dtype(np.float32)}


def test_backgrounds_are_averaged_where_all_is_enumerated_and_drawn_otherwise() -> None:
    rng = np.random.default_rng(1)
    x, sequences = rng.normal(size=4), rng.normal(size=(3, 4))
    weight = rng.normal(size=4)

    def model(batch: Array) -> Array:
        return np.tanh((batch * weight).cumsum(axis=1)).sum(axis=1)

    gamma = np.zeros((4, 4))
    for sequence in sequences:

        def game(batch: Array, behind: Array = sequence) -> Array:
            return model(np.where(batch > 0, np.r_[0.0, x][batch], behind))

        gamma += brute_force(game, 4) / 3
    found = ordshap(model, x, mask=Background(sequences), method="exact")
    np.testing.assert_allclose(gamma_of(found), gamma, atol=1e-12)
    assert found.completeness_gap < 1e-12
    for method in ("permutation", "least_squares"):
        drawn = ordshap(
            model,
            x,
            mask=Background(sequences),
            method=method,
            n_permutations=2_000,
            n_subsets=20_000,
        )
        z = (drawn.value_importance - gamma.mean(1)) / drawn.value_stderr
        assert np.abs(z).max() < 4
        assert drawn.value_stderr.max() < 0.05
        assert drawn.completeness_gap < 1e-12
        # 3 draws of the empty set, 24 whole sequences, and what lies between.
        assert drawn.model_calls <= 3 * 209


def test_one_output_of_several() -> None:
    game, x = random_game(4, 5), np.arange(1, 5)

    def model(batch: Array) -> Array:
        return np.column_stack([game(batch), -2 * game(batch)])

    first, second = (exact(model, x, output=k).value_importance for k in (0, 1))
    np.testing.assert_allclose(second, -2 * first, atol=1e-12)
    alone = exact(lambda batch: game(batch)[:, None], x).value_importance
    np.testing.assert_array_equal(alone, first)
    with pytest.raises(ValueError, match="2 outputs"):
        exact(model, x)
    with pytest.raises(ValueError, match="output 2 of a model with 2"):
        exact(model, x, output=2)
    with pytest.raises(ValueError, match="output 1 of a model with 1"):
        exact(game, x, output=1)


def test_stops_at_the_standard_error_that_was_asked_for() -> None:
    game, x = random_game(5, 4), np.arange(1, 6)
    full = ordshap(game, x, mask=0, n_permutations=1_000)
    found = ordshap(game, x, mask=0, n_permutations=1_000, target_stderr=0.05)
    assert max(found.value_stderr.max(), found.position_stderr.max()) <= 0.05
    assert found.model_calls < 0.7 * full.model_calls
    never = ordshap(game, x, mask=0, n_permutations=1_000, target_stderr=1e-9)
    np.testing.assert_array_equal(never.value_importance, full.value_importance)


def test_progress_counts_calls_and_can_end_the_work() -> None:
    game, x = random_game(6, 3), np.arange(1, 7)
    for method in ("permutation", "least_squares", "exact"):
        told: list[tuple[int, int]] = []
        found = ordshap(
            game,
            x,
            mask=0,
            method=method,
            batch_size=50,
            n_permutations=50,
            n_subsets=200,
            progress=lambda *done, told=told: told.append(done),
        )
        done, at_most = zip(*told, strict=True)
        assert list(done) == sorted(set(done))
        assert done[-1] == found.model_calls <= at_most[0]
        assert len(set(at_most)) == 1

    class CancelledError(Exception):
        pass

    calls = 0

    def cancel(done: int, at_most: int) -> None:
        nonlocal calls
        calls = done
        raise CancelledError

    with pytest.raises(CancelledError):
        ordshap(game, x, mask=0, batch_size=8, progress=cancel)
    assert calls == 8


@pytest.mark.parametrize("method", ["exact", "permutation", "least_squares"])
@pytest.mark.parametrize("d", [1, 2])
def test_short_sequences(method: str, d: int) -> None:
    game, x = random_game(d, 8), np.arange(1, d + 1)
    gamma = brute_force(game, d)
    found = ordshap(game, x, mask=0, method=method, n_permutations=400, n_subsets=4_000)
    tolerance = 1e-9 if method == "exact" else 0.05
    np.testing.assert_allclose(found.value_importance, gamma.mean(1), atol=tolerance)
    slope = slopes(gamma) if d > 1 else np.zeros(1)
    # Two units that interact: the slope of the linear approximation is another number.
    if method != "least_squares":
        np.testing.assert_allclose(found.position_importance, slope, atol=tolerance)


def test_long_sequences_and_small_budgets() -> None:
    d = 120
    weight, slope = np.random.default_rng(7).normal(size=(2, d + 1))
    weight[0] = slope[0] = 0.0
    centred = np.arange(d) - (d - 1) / 2

    def model(batch: Array) -> Array:
        return (weight[batch] + slope[batch] * centred / d).sum(axis=1)

    found = ordshap(model, np.arange(1, d + 1), mask=0, n_permutations=4)
    # The least that intervals may rest on.
    assert found.model_calls <= 128 * (2 * d - 1) + 1
    assert np.isnan(gamma_of(found)).any()
    np.testing.assert_allclose(found.value_importance, weight[1:], atol=1e-3)
    np.testing.assert_allclose(found.position_importance, slope[1:] / d, atol=1e-3)


def test_a_constant_model_and_a_huge_one() -> None:
    flat = ordshap(lambda batch: np.full(len(batch), 3.0), [1, 2, 3, 4], mask=0)
    for values in (flat.value_importance, flat.position_importance, flat.value_stderr):
        assert (values == 0.0).all()
    game = random_game(4, 1)
    small = ordshap(game, [1, 2, 3, 4], mask=0)
    huge = ordshap(lambda batch: 1e150 * game(batch), [1, 2, 3, 4], mask=0)
    np.testing.assert_allclose(huge.value_importance, 1e150 * small.value_importance, rtol=1e-6)
    np.testing.assert_allclose(huge.value_stderr, 1e150 * small.value_stderr, rtol=1e-3)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"method": "magic"}, "'magic'"),
        ({"mask": [1, 2]}, "shape"),
        ({"mask": Background(np.zeros((2, 5)))}, r"\(2, 5\)"),
        ({"mask": Background(np.zeros((0, 4)))}, r"\(0, 4\)"),
        ({"fixed": [4]}, "within 0..3"),
        ({"fixed": [1, 1]}, "distinct"),
        ({"fixed": [0, 1, 2, 3]}, "every element is fixed"),
        ({"positions": [1.0, 2.0]}, r"\(2,\)"),
        ({"positions": [0.0, 1.0, np.nan, 2.0]}, "finite"),
        ({"n_permutations": -3}, "n_permutations"),
        ({"batch_size": 0}, "batch_size"),
        ({"target_stderr": 0.0}, "target_stderr"),
        ({"target_stderr": 0.1, "method": "exact"}, "target_stderr"),
        ({"groups": []}, "groups is empty"),
        ({"groups": [[0, 2]]}, "no run"),
        ({"groups": [[1, 2], [0]]}, "in the order"),
        ({"groups": [[0, 1], [1, 2]]}, "disjoint"),
        ({"groups": [[3, 4]]}, "within 0..3"),
        ({"groups": [[0, 1], [2, 3]], "fixed": [1]}, "in part"),
        ({"method": "least_squares", "n_permutations": 1}, "n_permutations >= 2"),
        ({"method": "least_squares", "n_subsets": 7}, "n_subsets"),
        ({"x": []}, "d >= 1"),
        ({"x": 3}, "d >= 1"),
        ({"x": np.arange(9), "method": "exact"}, "permutation"),
    ],
)
def test_wrong_arguments_are_named(keywords: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"x": [1, 2, 3, 4], "mask": 0, **keywords}
    with pytest.raises(ValueError, match=message):
        ordshap(lambda batch: batch.sum(axis=1), given.pop("x"), **given)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda batch: np.zeros(len(batch) + 1), "shape"),
        (lambda batch: np.zeros((len(batch), 1, 1)), "shape"),
        (lambda batch: 1.0, "shape"),
        (lambda batch: np.where(batch[:, 0] == 0, np.nan, 1.0), "not finite"),
        (lambda batch: np.full(len(batch), np.inf), "not finite"),
        (lambda batch: np.array(["a"] * len(batch)), "real numbers"),
    ],
)
def test_wrong_outputs_are_named(returned: Game, message: str) -> None:
    with pytest.raises(ModelOutputError, match=message):
        ordshap(returned, [1, 2, 3], mask=0)


def test_an_error_of_the_model_comes_through() -> None:
    def model(batch: Array) -> Array:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        ordshap(model, [1, 2, 3], mask=0)
