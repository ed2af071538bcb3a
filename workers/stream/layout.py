"""The columns of a model: from its card and, where that is silent, from its first rows.

A numeric feature is one column; a categorical is one 0/1 column per level plus '(other)', and its
columns form a block. A missing value is NaN in every column of its feature.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from types import NoneType

import numpy as np
import numpy.typing as npt

from attributary.schemas.arrow import ArrowRows
from attributary.schemas.arrow_columns import category, texts
from attributary.schemas.card import Feature, ModelCard
from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.grid import Column
from attributary.schemas.row import FeatureValue, Row, RowError
from attributary.schemas.row_shape import Shape, ShapedFeatures

Floats = npt.NDArray[np.float64]
_NUMBERS = frozenset({float, int, bool, NoneType})
DEFAULT_OUTPUT = "output"
_MOST_SHAPES = 100
_Take = Callable[[ShapedFeatures], Sequence[FeatureValue] | bytes]


@dataclass
class Encoded:
    """Rows as arrays: ``kept`` are the positions of usable ones in the input, ``errors`` why others are none.

    X (n, columns), Y (n, outputs), weight (n,) or None where every weight is 1: of all that are kept, or of
    those among them that were asked for.
    """

    X: Floats
    Y: Floats
    weight: Floats | None
    kept: list[int]
    errors: list[RowError] = field(default_factory=list)


class Layout:
    """Maps rows onto columns. Immutable; two layouts are equal when their columns are."""

    def __init__(self, columns: Sequence[Column], outputs: Sequence[str], *, strict: bool = False):
        self.columns = tuple(columns)
        self.outputs = tuple(outputs)
        self.strict = strict
        self._numeric: dict[str, int] = {}
        self._levels: dict[str, dict[str | None, int]] = {}
        for index, column in enumerate(self.columns):
            if column.categorical:
                self._levels.setdefault(column.feature, {})[column.level] = index
            else:
                self._numeric[column.feature] = index
        for name, levels in self._levels.items():
            if None not in levels:
                raise ValueError(f"the categorical {name!r} lacks the column for other levels")
        self._names = tuple(self._numeric)
        self._positions = list(self._numeric.values())
        self._in_order = self._positions == list(range(len(self.columns)))
        self._features = frozenset([*self._numeric, *self._levels])
        self._takes: dict[Shape, _Take | None] = {}
        #: Column positions of every group.
        self.groups: dict[str, list[int]] = {}
        for index, column in enumerate(self.columns):
            if column.group is not None:
                self.groups.setdefault(column.group, []).append(index)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return self.columns == other.columns and self.outputs == other.outputs

    def __hash__(self) -> int:
        return hash((self.columns, self.outputs))

    @classmethod
    def learn(
        cls,
        card: ModelCard | None,
        values: Mapping[str, Sequence[FeatureValue]],
        outputs: Sequence[str],
        *,
        max_levels: int,
    ) -> Layout:
        """Return the card's layout, completed from sample values where the card is silent.

        ``values`` are sample values by feature, ``outputs`` the names to use without a card.
        """
        declared = list(card.features) if card is not None else []
        if not declared:
            declared = [
                Feature(name=name, kind="categorical" if _is_text(found) else "numeric")
                for name, found in values.items()
            ]
        columns: list[Column] = []
        for feature in declared:
            if feature.kind == "numeric":
                columns.append(Column(feature=feature.name, group=feature.group))
                continue
            levels = feature.levels
            if levels is None:
                named = map(category, values.get(feature.name, ()))
                found = Counter(level for level in named if level is not None)
                levels = sorted(level for level, _ in found.most_common(max_levels))
            group = feature.group or feature.name
            columns += [
                Column(feature=feature.name, level=level, categorical=True, group=group)
                for level in [*levels, None]
            ]
        declared_outputs = card.outputs if card is not None else []
        return cls(columns, declared_outputs or outputs, strict=card is not None and card.strict)

    def encode(self, rows: Sequence[Row], chosen: npt.NDArray[np.bool_] | None = None) -> Encoded:
        """Return JSON rows as arrays; a row that does not fit is an error of its own.

        All rows are checked; with ``chosen`` (rows,) only those are in the arrays.
        """
        kept: list[int] = []
        errors: list[RowError] = []
        held: list[Row] = []
        numeric: list[Sequence[FeatureValue] | bytes] = []
        outputs: list[Sequence[float | None]] = []
        wanted = [True] * len(rows) if chosen is None else chosen.tolist()
        for index, row in enumerate(rows):
            try:
                values = self._numeric_values(row.features)
                named = self._output_values(row.outputs)
            except RejectedError as error:
                errors.append(RowError(index, error.reason, str(error)))
                continue
            kept.append(index)
            if wanted[index]:
                held.append(row)
                numeric.append(values)
                outputs.append(named)
        X = _matrix(numeric, len(self._names))
        if not self._in_order:
            X, found = np.zeros((len(held), len(self.columns))), X
            X[:, self._positions] = found
        for name, levels in self._levels.items():
            _one_hot(X, levels, [category(row.features.get(name)) for row in held])
        Y = _matrix(outputs, len(self.outputs))
        weights = [row.weight for row in held]
        plain = weights.count(1.0) == len(weights)
        return Encoded(X, Y, None if plain else np.array(weights), kept, errors)

    def encode_arrow(self, rows: ArrowRows) -> Encoded:
        """Return Arrow rows as arrays; columns that do not fit reject the whole message."""
        self._check_names(rows.features.keys())
        X = rows.features.matrix(self._names)
        if not self._in_order:
            found, X = X, np.zeros((len(self.columns), rows.rows)).T
            X[:, self._positions] = found
        for name, levels in self._levels.items():
            column = rows.features.get(name)
            _one_hot(X, levels, [None] * rows.rows if column is None else texts(column, name))
        missing = [name for name in self.outputs if name not in rows.outputs]
        if missing:
            raise RejectedError(
                Reason.OUTPUTS_MISSING, f"expected the outputs {list(self.outputs)}, no {missing}"
            )
        Y = np.array([rows.outputs[name] for name in self.outputs]).T
        return Encoded(X, Y, rows.weight, list(range(rows.rows)))

    def _numeric_values(
        self, features: dict[str, FeatureValue] | ShapedFeatures
    ) -> Sequence[FeatureValue] | bytes:
        if isinstance(features, ShapedFeatures):
            take = self._take(features.shape)
            if take is not None:
                return take(features)
            features = dict(features.items())
        if tuple(features) == self._names and not (self.strict and self._levels):
            values = list(features.values())
        else:
            if self.strict or not self._features & features.keys():
                self._check_names(features.keys())
            values = [features.get(name) for name in self._names]
        if not _NUMBERS.issuperset(map(type, values)):
            name, value = next(
                pair for pair in zip(self._names, values, strict=True) if isinstance(pair[1], str)
            )
            raise RejectedError(
                Reason.WRONG_TYPE, f"feature {name!r} is numeric, got the text {value!r:.60}"
            )
        return values

    def _take(self, shape: Shape) -> _Take | None:
        """Return what picks the numeric features of a shape whose rows all fit, else None."""
        if shape not in self._takes:
            if len(self._takes) >= _MOST_SHAPES:
                self._takes.clear()
            self._takes[shape] = self._make_take(shape)
        return self._takes[shape]

    def _make_take(self, shape: Shape) -> _Take | None:
        if self.strict or shape.texts or not self._names:
            return None
        if shape.names == self._names:
            return attrgetter("content")
        if not shape.places.keys() >= set(self._names):
            return None
        places = [shape.places[name] for name in self._names]

        def take(features: ShapedFeatures) -> list[FeatureValue]:
            values = features.values()
            return [values[place] for place in places]

        return take

    def _check_names(self, given: Iterable[str]) -> None:
        names = set(given)
        if missing := self._features - names if self.strict else set():
            raise RejectedError(
                Reason.FEATURES_MISSING, f"the card is strict; missing: {sorted(missing)[:5]}"
            )
        if extra := names - self._features if self.strict else set():
            raise RejectedError(
                Reason.FEATURES_UNKNOWN, f"the card is strict; not in it: {sorted(extra)[:5]}"
            )
        if self._features and not names & self._features:
            raise RejectedError(
                Reason.FEATURES_MISSING,
                f"none of the model's features is in the row; it has {sorted(names)[:5]}",
            )

    def _output_values(
        self, outputs: float | list[float | None] | dict[str, float | None]
    ) -> Sequence[float | None]:
        if isinstance(outputs, dict):
            try:
                return [outputs[name] for name in self.outputs]
            except KeyError as error:
                raise RejectedError(
                    Reason.OUTPUTS_MISSING,
                    f"expected the outputs {list(self.outputs)[:5]}, no {error}",
                ) from None
        values = outputs if isinstance(outputs, list) else [outputs]
        if len(values) != len(self.outputs):
            raise RejectedError(
                Reason.OUTPUTS_MISSING,
                f"expected {len(self.outputs)} outputs {list(self.outputs)[:5]}, got {len(values)}",
            )
        return values


@lru_cache(maxsize=64)
def _packer(columns: int) -> struct.Struct:
    return struct.Struct(f"{columns}d")


def _matrix(rows: Sequence[Sequence[FeatureValue] | bytes], columns: int) -> Floats:
    """Return rows of numbers, packed or not, as an array (n, columns), None as NaN."""
    packer = _packer(columns)
    pack = packer.pack
    try:
        packed = b"".join([row if type(row) is bytes else pack(*row) for row in rows])
        return np.frombuffer(packed, dtype=np.float64).reshape(len(rows), columns)
    except (struct.error, OverflowError):
        plain = [packer.unpack(row) if isinstance(row, bytes) else row for row in rows]
        return np.array(plain, dtype=np.float64).reshape(len(rows), columns)


def output_names(outputs: float | list[float | None] | dict[str, float | None]) -> list[str]:
    """Return the names that the outputs of a row without a card go by."""
    if isinstance(outputs, dict):
        return list(outputs)
    if isinstance(outputs, list) and len(outputs) != 1:
        return [str(index) for index in range(len(outputs))]
    return [DEFAULT_OUTPUT]


def _is_text(values: Iterable[FeatureValue]) -> bool:
    return any(isinstance(value, str) for value in values)


def _one_hot(X: Floats, levels: dict[str | None, int], values: Sequence[str | None]) -> None:
    other = levels[None]
    columns = list(levels.values())
    for row, value in enumerate(values):
        if value is None:
            X[row, columns] = np.nan
        else:
            X[row, levels.get(value, other)] = 1.0
