"""Instances and background as the methods see them, and as the model takes them.

Two spaces: "columns" has what the stream scores (a number is one column, a categorical one 0/1 column per
level and '(other)'), "features" has one column per feature, a categorical by its level's position in the
card and -1 for others. A missing value is NaN in every column of its feature.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np

from attributary.schemas.card import Feature, ModelCard
from attributary.schemas.explanation import ErrorCode
from attributary.schemas.grid import Column
from attributary.schemas.request import Instance
from attributary.schemas.row import Row
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.methods.method import Floats, Space
from attributary.workers.stream.layout import Layout

_OTHER = -1.0


class Inputs:
    """The features of a model, and the columns that they become."""

    def __init__(self, card: ModelCard, columns: Sequence[Column] = ()) -> None:
        """``columns``: those of the stream, which say what the card leaves out.

        RequestError: neither names the features or the levels of a categorical.
        """
        self.features = tuple(_features(card, columns))
        self._names = {feature.name: place for place, feature in enumerate(self.features)}
        self._codes = card.artefact is not None and card.artefact.categories == "codes"
        self.layout = Layout.learn(
            card.model_copy(
                update={"features": list(self.features), "outputs": [], "strict": False}
            ),
            {},
            [],
            max_levels=0,
        )
        by_feature: dict[str, list[int]] = {}
        for index, column in enumerate(self.layout.columns):
            by_feature.setdefault(column.feature, []).append(index)
        #: Per feature, its columns in the space "columns"; '(other)' last.
        self.positions = tuple(tuple(by_feature[feature.name]) for feature in self.features)

    @property
    def width(self) -> int:
        """Columns in the space "columns"."""
        return len(self.layout.columns)

    def columns_of(self, space: Space) -> tuple[tuple[int, ...], ...]:
        """Return, per feature, its columns in X."""
        if space == "columns":
            return self.positions
        return tuple((place,) for place in range(len(self.features)))

    def encode(self, instances: Sequence[Instance], what: str) -> Floats:
        """Return rows (n, columns) in the space "columns"; RequestError names what is wrong with one."""
        for number, instance in enumerate(instances):
            self._check_names(instance, f"{what} {number}")
        encoded = self.layout.encode([Row(instance.features, []) for instance in instances])
        if encoded.errors:
            first = encoded.errors[0]
            raise RequestError(ErrorCode.BAD_REQUEST, f"{what} {first.index}: {first.message}")
        if np.isinf(encoded.X).any():
            row, column = np.argwhere(np.isinf(encoded.X))[0]
            raise RequestError(
                ErrorCode.BAD_REQUEST,
                f"{what} {row}: feature {self.layout.columns[column].feature!r} is infinite; send a "
                "finite number, or null where it is missing",
            )
        return encoded.X

    def project(self, X: Floats, columns: Sequence[Column]) -> Floats:
        """Return rows of the stream's columns as rows of this model's columns."""
        if tuple(columns) == self.layout.columns:
            return X
        found = np.full((len(X), self.width), np.nan)
        given: dict[str, dict[str | None, int]] = {}
        for index, column in enumerate(columns):
            given.setdefault(column.feature, {})[column.level] = index
        for feature, places in zip(self.features, self.positions, strict=True):
            sources = given.get(feature.name)
            if sources is None:
                continue
            if feature.kind == "numeric":
                if None in sources:
                    found[:, places[0]] = X[:, sources[None]]
                continue
            levels = [self.layout.columns[place].level for place in places[:-1]]
            for place, level in zip(places, levels, strict=False):
                found[:, place] = X[:, sources[level]] if level in sources else 0.0
            missing = np.isnan(X[:, next(iter(sources.values()))])
            found[np.ix_(np.flatnonzero(missing), np.array(places))] = np.nan
            found[:, places[-1]] = 1.0 - found[:, places[:-1]].sum(axis=1)
        return found

    def to_space(self, X: Floats, space: Space) -> Floats:
        """Return rows of the space "columns" as rows of another space."""
        return X if space == "columns" else self._to_codes(X, other=_OTHER)

    def to_model(self, X: Floats, space: Space) -> Floats:
        """Return what the model takes for rows of a space: levels in order, or codes; 'other' is none."""
        if space == "features":
            if self._codes:
                found: Floats = X.copy()
                for place, feature in enumerate(self.features):
                    if feature.kind != "numeric":
                        found[found[:, place] < 0, place] = np.nan
                return found
            return self._one_hot(X)
        if self._codes:
            return self._to_codes(X, other=np.nan)
        kept = [
            index
            for index, column in enumerate(self.layout.columns)
            if not (column.categorical and column.level is None)
        ]
        return X if len(kept) == X.shape[1] else X[:, kept]

    def plain(self, space: Space) -> bool:
        """Whether the model takes rows of the space as they stand."""
        return all(feature.kind == "numeric" for feature in self.features) or (
            space == "features" and self._codes
        )

    def values(self, X: Floats) -> tuple[tuple[float | str | None, ...], ...]:
        """Return, per row of the space "columns" and feature, the number or the level; None: missing."""
        codes = self._to_codes(X, other=_OTHER)
        return tuple(
            tuple(
                _value(self.features[place], float(code)) for place, code in enumerate(row.tolist())
            )
            for row in codes
        )

    def bounds(self) -> tuple[Floats, Floats] | None:
        """Return low and high (columns,) of the card's training ranges; None where it has none."""
        low, high = np.full(self.width, -np.inf), np.full(self.width, np.inf)
        for feature, places in zip(self.features, self.positions, strict=True):
            if feature.kind == "numeric":
                low[places[0]] = -np.inf if feature.low is None else feature.low
                high[places[0]] = np.inf if feature.high is None else feature.high
        known = np.isfinite(low).any() or np.isfinite(high).any()
        return (low, high) if known else None

    def _check_names(self, instance: Instance, what: str) -> None:
        for name in instance.features:
            if name not in self._names:
                close = difflib.get_close_matches(name, self._names, n=1)
                hint = f"did you mean {close[0]!r}?" if close else f"it has {list(self._names)[:5]}"
                raise RequestError(
                    ErrorCode.BAD_REQUEST, f"{what}: the model has no feature {name!r:.80}: {hint}"
                )
        missing = [name for name in self._names if name not in instance.features]
        if missing:
            raise RequestError(
                ErrorCode.BAD_REQUEST,
                f"{what}: no value for {', '.join(map(repr, missing[:5]))}"
                f"{' and others' if len(missing) > 5 else ''}; send null where one is missing",
            )

    def _to_codes(self, X: Floats, *, other: float) -> Floats:
        found = np.empty((len(X), len(self.features)))
        for place, (feature, places) in enumerate(zip(self.features, self.positions, strict=True)):
            block = X[:, list(places)]
            if feature.kind == "numeric":
                found[:, place] = block[:, 0]
                continue
            code = np.argmax(np.nan_to_num(block), axis=1).astype(np.float64)
            code[code == len(places) - 1] = other
            code[np.isnan(block).any(axis=1)] = np.nan
            found[:, place] = code
        return found

    def _one_hot(self, X: Floats) -> Floats:
        parts = []
        for place, feature in enumerate(self.features):
            column = X[:, place]
            if feature.kind == "numeric":
                parts.append(column[:, None])
                continue
            levels = np.arange(len(self.positions[place]) - 1)
            block = (column[:, None] == levels).astype(np.float64)
            block[np.isnan(column)] = np.nan
            parts.append(block)
        return np.concatenate(parts, axis=1)


def _features(card: ModelCard, columns: Sequence[Column]) -> list[Feature]:
    """Return the features with the levels of the categoricals."""
    levels: dict[str, list[str] | None] = {}
    for column in columns:
        if not column.categorical:
            levels[column.feature] = None
        else:
            found = levels.setdefault(column.feature, [])
            if found is not None and column.level is not None:
                found.append(column.level)
    declared = card.features or [
        Feature(name=name, kind="numeric" if found is None else "categorical", levels=found)
        for name, found in levels.items()
    ]
    if not declared:
        raise RequestError(
            ErrorCode.MODEL_UNKNOWN,
            f"the card of {card.model} names no features, and none were learnt from rows: register "
            "it with its features in the order that the model takes them",
        )
    complete = []
    for feature in declared:
        if feature.kind != "numeric" and feature.levels is None:
            learnt = levels.get(feature.name)
            if learnt is None:
                raise RequestError(
                    ErrorCode.MODEL_UNKNOWN,
                    f"the card of {card.model} does not say the levels of {feature.name!r}, and none "
                    "were learnt from rows: register it with them, in the order that the model takes",
                )
            feature = feature.model_copy(update={"levels": learnt})
        complete.append(feature)
    return complete


def _value(feature: Feature, code: float) -> float | str | None:
    if np.isnan(code):
        return None
    if feature.kind == "numeric":
        return code
    levels = feature.levels or []
    return levels[int(code)] if code >= 0 else "(other)"
