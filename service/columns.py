"""Which columns of a file are features, outputs, id, time and weight."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from attributary.schemas.card import Feature, ModelCard
from attributary.schemas.errors import ConfigurationError

RESERVED = ("_id", "_time", "_weight")


@dataclass(frozen=True)
class Choice:
    """What the user asked for; ``features`` None: every column that is nothing else, or ``left_out``.

    ``modelled``: the rows have no outputs, a model says them.
    """

    outputs: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None
    categorical: tuple[str, ...] = ()
    id: str | None = None
    time: str | None = None
    weight: str | None = None
    left_out: tuple[str, ...] = ()
    modelled: bool = False

    @property
    def texts(self) -> set[str]:
        """Columns to read as text whatever they look like."""
        return {*self.categorical, *([self.id] if self.id else [])}


@dataclass(frozen=True)
class Columns:
    """The choice, resolved against a file; ``left_out`` says which columns are not features, and why."""

    features: tuple[str, ...]
    outputs: tuple[str, ...]
    id: str | None
    time: str | None
    weight: str | None
    left_out: tuple[str, ...] = ()

    @property
    def all(self) -> list[str]:
        """Every column to read, each once."""
        others = [name for name in (self.id, self.time, self.weight) if name is not None]
        return list(dict.fromkeys([*self.features, *self.outputs, *others]))


def choose(choice: Choice, names: Sequence[str]) -> Columns:
    """Return the columns by name; ConfigurationError names a missing one and the closest there is."""
    if not choice.outputs and not choice.modelled:
        raise ConfigurationError(
            "name the columns that hold the model's outputs with --outputs; there are "
            f"{_some(names)}"
        )
    single = {
        "--id-column": choice.id,
        "--time-column": choice.time,
        "--weight-column": choice.weight,
    }
    asked = {
        "--outputs": choice.outputs,
        "--features": choice.features or (),
        "--categorical": choice.categorical,
        "--leave-out": choice.left_out,
        **{option: (name,) for option, name in single.items() if name is not None},
    }
    for option, wanted in asked.items():
        for name in wanted:
            if name not in names:
                raise ConfigurationError(f"{option}: no column {name!r}: {_closest(name, names)}")
    others = (name for name in single.values() if name is not None)
    taken = {*choice.outputs, *choice.left_out, *others}
    if choice.features is None:
        features = tuple(name for name in names if name not in taken and name not in RESERVED)
    else:
        features = tuple(dict.fromkeys(choice.features))
    both = [name for name in features if name in choice.outputs]
    if both:
        raise ConfigurationError(f"{both[0]!r} is in --features and in --outputs: choose one")
    extra = [name for name in choice.categorical if name not in features]
    if extra:
        raise ConfigurationError(f"--categorical: {extra[0]!r} is not among the features")
    if not features:
        raise ConfigurationError(f"no column is left for the features; there are {_some(names)}")
    return Columns(features, choice.outputs, choice.id, choice.time, choice.weight)


def choose_typed(choice: Choice, schema: Any) -> Columns:
    """Return the columns of an Arrow schema; ConfigurationError where a type cannot serve.

    Columns that cannot be features (times, nested values) are left out unless they were asked for.
    """
    import pyarrow as pa

    found = choose(choice, schema.names)
    kinds = {field.name: field.type for field in schema}
    for name in (*found.outputs, *([found.weight] if found.weight else [])):
        if not _numeric(kinds[name]):
            raise ConfigurationError(f"column {name!r} must be numeric, it holds {kinds[name]}")
    if found.time is not None:
        kind = kinds[found.time]
        if not (_numeric(kind) or pa.types.is_temporal(kind) or _textual(kind)):
            raise ConfigurationError(
                f"--time-column {found.time!r} must hold times or seconds since 1970, "
                f"it holds {kind}"
            )
    unfit = [n for n in found.features if not (_numeric(kinds[n]) or _textual(kinds[n]))]
    if unfit and choice.features is not None:
        raise ConfigurationError(
            f"--features: {unfit[0]!r} holds {kinds[unfit[0]]}: "
            "a feature is a number, a boolean or a string"
        )
    features = tuple(name for name in found.features if name not in unfit)
    if not features:
        raise ConfigurationError("no column is left that could be a feature")
    return Columns(
        features,
        found.outputs,
        found.id,
        found.time,
        found.weight,
        tuple(f"{name} ({kinds[name]})" for name in unfit),
    )


def derive_card(
    model: str, columns: Columns, texts: Collection[str], categorical: Collection[str]
) -> ModelCard:
    """Return the card of a model: ``texts`` and ``categorical`` columns are categories."""
    categories = {*texts, *categorical}
    return ModelCard(
        model=model,
        features=[
            Feature(name=name, kind="categorical" if name in categories else "numeric")
            for name in columns.features
        ],
        outputs=list(columns.outputs),
    )


def text_columns(columns: Columns, schema: Any) -> set[str]:
    """Return the features that hold strings."""
    return {name for name in columns.features if _textual(schema.field(name).type)}


def _numeric(kind: Any) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_null(kind)
    )


def _textual(kind: Any) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _closest(name: str, names: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"there are {_some(names)}"


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:12]))
    return shown if len(names) <= 12 else f"{shown} and {len(names) - 12} more"
