"""Rows as callers have them at hand (mappings, data frames, numpy scalars), as a request carries them."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from pydantic import ValidationError

from attributary.schemas.errors import ConfigurationError, RejectedError
from attributary.schemas.request import Instance, StreamWindow, Value
from attributary.service.arrays import dimensions, is_numpy
from attributary.service.refusals import refusal_of
from attributary.service.row_values import plain_value

_HIGHEST = sys.float_info.max
_NAMELESS = (
    "has no names of features: give each row as a mapping, such as dict(zip(names, row)), or a data frame "
    "whose columns are the features"
)


class Named(Protocol):
    """A data frame, or a series: pandas' own, or what is like them."""

    def keys(self) -> Any:
        """Return the names."""

    def __getitem__(self, name: Any, /) -> Any:
        """Return what has the name."""


def given_rows(given: Any, what: str) -> list[Instance] | StreamWindow:
    """Return one row or several as instances; a window stays one. ``what`` names them in errors.

    A row is a mapping, a series or an Instance; a data frame has one in each line. NaN and pandas' NA
    become null, missing. ConfigurationError: what is wrong with which row.
    """
    if isinstance(given, StreamWindow):
        return given
    if _is_frame(given):
        rows = _lines(given, what)
    elif _is_row(given):
        return [instance_of(given, what)]
    else:
        rows = _listed(given, what)
    found = [instance_of(row, f"{what}, row {number}") for number, row in enumerate(rows)]
    if not found:
        raise ConfigurationError(f"{what}: expected a row or several, got none")
    return found


def instance_of(row: Any, place: str, name: str | None = None) -> Instance:
    """Return one row; ``name`` is its id. ConfigurationError begins with ``place``."""
    if isinstance(row, Instance):
        features: Iterable[tuple[Any, Any]] = row.features.items()
        name = row.id
    elif _is_row(row):
        features = ((key, row[key]) for key in row) if isinstance(row, Mapping) else row.items()
    elif dimensions(row) > 0 and not _is_frame(row):
        raise ConfigurationError(f"{place}: {type(row).__name__} {_NAMELESS}")
    else:
        raise ConfigurationError(f"{place}: expected features by name, got {type(row).__name__}")
    found: dict[str, Value] = {}
    for key, value in features:
        feature = _name(key, place)
        if feature in found:
            raise ConfigurationError(f"{place}: feature {feature!r:.80} is given twice")
        found[feature] = _value(value, feature, place)
    try:
        return Instance(features=found, id=name)
    except ValidationError as error:
        raise ConfigurationError(f"{place}: {refusal_of(error)}") from None


def _value(given: Any, feature: str, place: str) -> Value:
    if type(given).__name__ == "NAType":  # pandas' own missing value
        return None
    try:
        value = plain_value(given, feature)
    except RejectedError as error:
        raise ConfigurationError(f"{place}: {error}") from None
    if value is None or isinstance(value, str):
        return value
    if abs(value) > _HIGHEST:
        raise ConfigurationError(
            f"{place}: feature {feature!r:.80} is infinite; send a finite number, or null where it is missing"
        )
    return None if math.isnan(value) else value


def _name(key: Any, place: str) -> str:
    if is_numpy(key) and key.ndim == 0:
        key = key.item()
    if isinstance(key, bool) or not isinstance(key, (str, int)):
        raise ConfigurationError(f"{place}: a feature's name must be a text, got {key!r:.80}")
    return str(key)


def _is_frame(given: Any) -> bool:
    return hasattr(given, "columns") and hasattr(given, "__getitem__")


def _is_row(given: Any) -> bool:
    return isinstance(given, (Mapping, Instance)) or (
        hasattr(given, "keys") and hasattr(given, "items") and not _is_frame(given)
    )


def _lines(frame: Any, what: str) -> list[dict[str, Any]]:
    names = [_name(name, what) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigurationError(f"{what}: the data frame names a column twice: {twice[0]!r:.80}")
    lines = (
        frame.itertuples(index=False, name=None)
        if hasattr(frame, "itertuples")
        else frame.iter_rows()
    )
    return [dict(zip(names, line, strict=True)) for line in lines]


def _listed(given: Any, what: str) -> list[Any]:
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise ConfigurationError(
            f"{what}: expected a mapping of features, or several, got {type(given).__name__}"
        )
    rows = list(given)
    if rows and dimensions(rows[0]) == 0 and not _is_row(rows[0]):
        raise ConfigurationError(f"{what}: {type(given).__name__} {_NAMELESS}")
    return rows
