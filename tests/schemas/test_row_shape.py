"""Rows decoded into the shape of those before: the same rows as the general decoder's, or left to it."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import numpy as np
import pytest
from streams import card, layout

from attributary.schemas import row_shape
from attributary.schemas.card import Feature
from attributary.schemas.errors import RejectedError
from attributary.schemas.row import JsonRows, Row, decode_json_rows
from attributary.schemas.row_shape import RowShapes, ShapedFeatures

NAMES = ("a", "b", "c", "ü d", "model")


def _message(rng: random.Random) -> bytes:
    numbers = (0, -0.0, 1, 2**53 + 1, 10**25, 1e-320, 0.1, 1e308, rng.gauss(0, 1))
    features: dict[str, Any] = {name: rng.choice(numbers) for name in NAMES}
    odd: list[Any] = [None, True, "x", "", "\ud800", math.nan, 10**400, [1], {}, "\\u0041"]
    if rng.random() < 0.3:
        features[rng.choice(NAMES)] = rng.choice(odd)
    if rng.random() < 0.1:
        del features[rng.choice(NAMES)]
    if rng.random() < 0.1:
        features["extra"] = 1
    if rng.random() < 0.1:
        features = dict(rng.sample(list(features.items()), len(features)))
    row: dict[str, Any] = {"features": features, "outputs": rng.choice([1, [1.5], {"y": 2}, None])}
    for name, values in (
        ("model", ["m", "n", "", 5, None]),
        ("id", [1, "r", None]),
        ("time", [5, "2026-01-31T12:00:00Z", None]),
        ("weight", [2, 0, None]),
        ("schema", ["attributary.row/1", "other", None]),
        ("more", [1]),
    ):
        if rng.random() < 0.15:
            row[name] = rng.choice(values)
    text = json.dumps(row)
    if rng.random() < 0.05:
        text = text.replace('"features": {', '"features": {"a": 7, ')  # twice: the last one holds
    if rng.random() < 0.05:
        text = text[: rng.randrange(len(text))]
    return text.encode()


def _decoded(data: bytes, model: str | None, shapes: RowShapes | None) -> JsonRows | str:
    try:
        return decode_json_rows(data, model=model, shapes=shapes)
    except RejectedError as error:
        return f"{error.reason} {error}"


def _plain(row: Row) -> list[Any]:
    rest = [row.outputs, row.model, row.id, row.time, row.weight, row.schema]
    features: Any = row.features
    items = features.items()
    # Where a shape holds numbers alone, what is missing is NaN.
    return [[(k, None if v != v else (type(v), v)) for k, v in items], *rest]


@pytest.mark.parametrize("seed", range(5))
def test_a_shape_makes_the_same_rows_or_none(seed: int) -> None:
    rng, shapes, shaped = random.Random(seed), RowShapes(), 0
    for _ in range(1500):
        data, model = _message(rng), rng.choice([None, "m"])
        if rng.random() < 0.2:
            data = b"[" + data + b"," + _message(rng) + b"]"
        general, found = _decoded(data, model, None), _decoded(data, model, shapes)
        if isinstance(general, str) or isinstance(found, str):
            assert found == general, data
            continue
        assert found.errors == general.errors
        assert [entry[:2] for entry in found.rows] == [entry[:2] for entry in general.rows]
        for (_, _, mine), (_, _, its) in zip(found.rows, general.rows, strict=True):
            shaped += isinstance(mine.features, ShapedFeatures)
            mine_features, its_features = dict(mine.features.items()), dict(its.features)
            assert mine_features.keys() == its_features.keys(), data
            order = sorted(mine_features)
            if list(mine_features) != list(its_features):  # the order of a shape is its own
                mine = _ordered(mine, order)
                its = _ordered(its, order)
            for left, right in zip(_plain(mine), _plain(its), strict=True):
                assert left == right, data
    assert shaped > 300


def _ordered(row: Row, names: list[str]) -> Row:
    values = dict(row.features.items())
    features = {name: values[name] for name in names}
    return Row(features, row.outputs, row.model, row.id, row.time, row.weight, row.schema)


def test_numbers_are_packed_and_texts_are_not() -> None:
    shapes = RowShapes()
    numbers = json.dumps({"model": "m", "features": dict.fromkeys("abcd", 1.5), "outputs": 1})
    texts = json.dumps({"model": "t", "features": dict.fromkeys("abcd", "x"), "outputs": 1})
    for _ in range(20):
        for data in (numbers, texts):
            decode_json_rows(data.encode(), shapes=shapes)
    packed, plain = (shapes.decode(data.encode(), None) for data in (numbers, texts))
    assert packed is not None
    assert plain is not None
    assert packed.features.content == np.full(4, 1.5).tobytes()  # type: ignore[attr-defined]
    assert plain.features.content == ("x",) * 4  # type: ignore[attr-defined]
    assert shapes.decode(numbers.replace("1.5", "null").encode(), None).features.get("a") != 0  # type: ignore[union-attr]


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    "features",
    [
        ("a", "b", "c", "d"),
        ("d", "b"),
        ("b", "missing"),
        ("a", Feature(name="b", kind="categorical", levels=["1", "2"]), "c"),
    ],
)
def test_a_layout_makes_the_same_arrays_of_them(features: tuple[Any, ...], strict: bool) -> None:
    of = card(*features, strict=strict)
    rng = random.Random(1)
    shapes, made = RowShapes(), layout(of)
    rows = []
    for _ in range(60):
        values = {name: rng.choice([1, 2.0, rng.gauss(0, 1), None]) for name in "abcd"}
        data = json.dumps({"model": "m", "features": values, "outputs": [rng.gauss(0, 1)]})
        rows.append([decode_json_rows(data.encode(), shapes=s).rows[0][2] for s in (shapes, None)])
    assert isinstance(rows[-1][0].features, ShapedFeatures)
    mine, its = made.encode([row[0] for row in rows]), made.encode([row[1] for row in rows])
    assert np.array_equal(mine.X, its.X, equal_nan=True)
    assert np.array_equal(mine.Y, its.Y)
    assert (mine.kept, mine.errors) == (its.kept, its.errors)


def test_endless_names_of_features_are_forgotten_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_shape, "_MOST_NAMES_IN_ALL", 500)
    shapes, held = RowShapes(), []
    for number in range(200):
        features = {f"f{number}-{index}": 1.0 for index in range(10 + number % 7)}
        for _ in range(9):  # other names than before, often enough to take their place
            shapes.learn(b"{}", f"m{number % 40}", Row(features, 1.0))
        held.append(sum(len(learnt.names) for learnt in shapes._shapes.values()))
        assert held[-1] == shapes._names
    assert 400 < max(held) <= 500
