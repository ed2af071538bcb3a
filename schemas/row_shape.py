"""Rows with the features of the rows before them: decoded into a struct of these names, not into a dict.

That takes a third of the time, and the values are numbers one behind the other. It never makes another row
of a message than the general decoder does: what does not fit the struct exactly is left to that one.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import astuple

from attributary.schemas.row import MAX_NAME, FeatureValue, Row

# A struct takes a millisecond to build: names must have come so often before, and kinds may change so often.
_LEARNT_AFTER, _REBUILT = 8, 3
_FEWEST_NAMES, _MOST_NAMES = 4, 2000
_MOST_HINTS = 1000
# Of all hints together: a decoder takes about 600 bytes a name.
_MOST_NAMES_IN_ALL = 200_000


@dataclass(frozen=True, eq=False)
class Shape:
    """Names of features in order; ``texts``: whether any of them may be text or a boolean."""

    names: tuple[str, ...]
    texts: bool
    places: Mapping[str, int]
    layout: struct.Struct

    @classmethod
    def of(cls, names: tuple[str, ...], *, texts: bool) -> Shape:
        """Return the shape of these names."""
        places = {name: place for place, name in enumerate(names)}
        return cls(names, texts, places, struct.Struct(f"{len(names)}d"))


class ShapedFeatures(msgspec.Struct, frozen=True, gc=False):
    """The features of one row: float64 one behind the other, NaN where missing; a tuple where texts may come.

    Packed at once, a row's numbers never leave the processor's cache as objects, and take a quarter of the
    memory while they wait.
    """

    shape: Shape
    content: bytes | tuple[FeatureValue, ...]

    def values(self) -> tuple[FeatureValue, ...]:
        """Return the values in the order of the shape's names."""
        if isinstance(self.content, bytes):
            return self.shape.layout.unpack(self.content)
        return self.content

    def items(self) -> Iterator[tuple[str, FeatureValue]]:
        """Yield (name, value)."""
        return zip(self.shape.names, self.values(), strict=True)

    def get(self, name: str) -> FeatureValue:
        """Return the value of a feature, None where the row has no such feature."""
        place = self.shape.places.get(name)
        return None if place is None else self.values()[place]


@dataclass
class _Learnt:
    """What is known of the rows that one hint leads to."""

    names: tuple[str, ...]
    seen: int = 0
    missed: int = 0
    built: int = 0
    booleans: set[int] = field(default_factory=set)
    texts: set[int] = field(default_factory=set)
    decoder: Any = None
    shape: Shape | None = None


_encoder = msgspec.json.Encoder()


class RowShapes:
    """Decoders by model, learnt from the rows; nothing that they return depends on what was learnt."""

    def __init__(self) -> None:
        self._shapes: dict[str | bytes, _Learnt] = {}
        self._names = 0

    def decode(self, data: bytes, model: str | None) -> Row | None:
        """Return the row, or None where it has to be decoded as any row."""
        learnt = self._shapes.get(model or _model_in(data))
        if learnt is None or learnt.shape is None:
            return None
        try:
            row = learnt.decoder.decode(data)
            if b"\\" in data and b"\\u" in data:
                _encoder.encode(row)  # half of a surrogate pair ends here
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        if isinstance(row.outputs, dict) and not all(0 < len(n) <= MAX_NAME for n in row.outputs):
            return None
        learnt.missed = 0
        shape, values = learnt.shape, astuple(row.features)
        if shape.texts:
            if any(isinstance(value, str) and len(value) > MAX_NAME for value in values):
                return None
            content: Any = values
        else:
            try:
                content = shape.layout.pack(*values)
            except struct.error:
                content = shape.layout.pack(*(math.nan if v is None else v for v in values))
        features: Any = ShapedFeatures(shape, content)
        return Row(features, row.outputs, row.model, row.id, row.time, row.weight, row.schema)

    def learn(self, data: bytes, model: str | None, row: Row) -> None:
        """Take note of a row that had to be decoded as any row."""
        if not _FEWEST_NAMES <= len(row.features) <= _MOST_NAMES:
            return
        hint = model or _model_in(data)
        names = tuple(row.features)
        shape = self._shapes.get(hint)
        if shape is None or (shape.names != names and shape.missed >= _LEARNT_AFTER):
            more = len(names) - (0 if shape is None else len(shape.names))
            if len(self._shapes) >= _MOST_HINTS or self._names + more > _MOST_NAMES_IN_ALL:
                self._shapes.clear()
                self._names, more = 0, len(names)
            self._names += more
            shape = self._shapes[hint] = _Learnt(names)
        if shape.names != names:
            shape.missed += 1
            return
        shape.seen += 1
        for place, value in enumerate(row.features.values()):
            if isinstance(value, str):
                shape.texts.add(place)
            elif isinstance(value, bool):
                shape.booleans.add(place)
        if shape.seen >= _LEARNT_AFTER and shape.built <= _REBUILT:
            shape.built += 1
            shape.decoder, shape.shape = _decoder(shape)


def _decoder(learnt: _Learnt) -> tuple[Any, Shape | None]:
    """Return the decoder of a shape; kinds that keep changing are all allowed everywhere."""
    every = range(len(learnt.names)) if learnt.built == _REBUILT else ()
    texts, booleans = learnt.texts.union(every), learnt.booleans.union(every)
    fields: list[Any] = []
    for place, name in enumerate(learnt.names):
        kind: Any = float | None
        kind = kind | bool if place in booleans else kind
        kind = kind | str if place in texts else kind
        fields.append((f"f{place}", kind, msgspec.field(name=name)))
    try:
        features = msgspec.defstruct("Features", fields, forbid_unknown_fields=True, gc=False)
        row = msgspec.defstruct(
            "ShapedRow", [("features", features)], bases=(Row,), frozen=True, kw_only=True
        )
        decoder = msgspec.json.Decoder(row)
    except (TypeError, ValueError):  # names that no struct can have
        return None, None
    return decoder, Shape.of(learnt.names, texts=bool(texts or booleans))


def _model_in(data: bytes) -> bytes:
    """Return what looks like the name of the row's model: a hint, and no more."""
    at = data.find(b'"model"')
    start = data.find(b'"', at + 7) + 1 if at >= 0 else 0
    return data[start : data.find(b'"', start, start + 200)] if start else b""
