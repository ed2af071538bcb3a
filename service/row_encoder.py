"""What a serving process has at hand (mappings, arrays, numpy scalars) as rows on the wire.

A row becomes bytes inside the call: the caller may change its objects afterwards, a bad row is known at
once, and so is its size. A vector of numbers can be nothing but a row: it is kept as it is, which takes a
tenth of the time, and becomes JSON where it is sent.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from time import time as now
from typing import Any

import msgspec

from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.row import Row, model_name, output_number, weight_of
from attributary.service.arrays import PLAIN, Numbers, as_array, is_array, numbers, plain_matrix
from attributary.service.row_values import (
    as_list,
    identity,
    one_row,
    plain_value,
    rows_of,
    seconds,
)

_HIGHEST = sys.float_info.max
_SUMS = (float, int)
# Most of one number with its comma and colon, of the rest of a row, and of the objects that keep one.
_NUMBER_BYTES, _ROW_BYTES, _KEPT_BYTES = 30, 1000, 150
MAX_ROW_BYTES = 900_000  # a message of one row stays below Kafka's default limit of 1 MiB


class KeptRow(msgspec.Struct, frozen=True, gc=False):
    """A row of numbers that is encoded later; ``size`` in bytes, as it is held."""

    encoder: RowEncoder
    features: Numbers
    outputs: float
    time: float
    size: int

    def encode(self) -> bytes:
        """Return the row as JSON."""
        return self.encoder.encode(self.features, self.outputs, None, self.time)


class RowEncoder:
    """Rows of one publisher: its model, and the names that arrays do not carry.

    ``feature_names`` name the positions of array features, ``output_names`` those of the outputs
    (without them a model's outputs go by position, in the card's order).
    """

    def __init__(
        self,
        model: str | None,
        feature_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
    ) -> None:
        self.model = None if model is None else model_name(model)
        self.feature_names = _names(feature_names, "feature_names")
        self.output_names = _names(output_names, "output_names")
        self._encoder = msgspec.json.Encoder()
        self._summed = True
        self._kept_features = self._most_kept()

    def _most_kept(self) -> int:
        """Return how many numbers make a row whatever they are; -1: none do, or not of any size."""
        if self.model is None or self.feature_names is None or self.output_names is not None:
            return -1
        try:
            names = len(self._encoder.encode(self.feature_names))
        except ValueError:  # half of a surrogate pair
            return -1
        rest = _NUMBER_BYTES * len(self.feature_names) + _ROW_BYTES
        return len(self.feature_names) if names + rest <= MAX_ROW_BYTES else -1

    def keep(
        self, features: Any, outputs: Any, name: Any, time: Any, weight: Any, model: str | None
    ) -> KeptRow | None:
        """Return a vector of numbers and its output as a row of now; None: it takes ``encode`` to tell."""
        if name is not None or time is not None or weight is not None or model is not None:
            return None
        if type(outputs) is not float or not -_HIGHEST <= outputs <= _HIGHEST:
            return None
        if type(features) is not Numbers:
            if not is_array(features) or features.ndim != 1:
                return None
            features = numbers(features)
        if features is None or features.count != self._kept_features:
            return None
        return KeptRow(self, features, outputs, now(), _KEPT_BYTES + len(features.data))

    def keep_batch(self, features: Any, outputs: Any) -> Iterator[KeptRow | bytes] | None:
        """Return the rows, of now, of a matrix of numbers and a vector of outputs; None as of ``keep``."""
        if not (is_array(features) and is_array(outputs)) or (features.ndim, outputs.ndim) != (
            2,
            1,
        ):
            return None
        kept, said = numbers(features), numbers(outputs)
        if kept is None or said is None or features.shape != (said.count, self._kept_features):
            return None
        return self._kept(kept, said.tolist())

    def _kept(self, matrix: Numbers, outputs: list[Any]) -> Iterator[KeptRow | bytes]:
        count, time = self._kept_features, now()
        step = count * matrix.dtype.itemsize
        size = _KEPT_BYTES + step
        for place, output in enumerate(outputs):
            data = matrix.data[place * step : (place + 1) * step]
            row = Numbers(data, matrix.dtype, count)
            if -_HIGHEST <= output <= _HIGHEST:
                yield KeptRow(self, row, float(output), time, size)
            else:
                yield self.encode(row, output, None, time)

    def encode(
        self,
        features: Any,
        outputs: Any,
        id: Any = None,  # noqa: A002 - the row's own field name
        time: Any = None,
        weight: Any = None,
        model: str | None = None,
    ) -> bytes:
        """Return one row as JSON, ``time`` now where it is None.

        A row that waits for a broker keeps the time at which it happened. RejectedError says what is
        wrong with it.
        """
        # Every call within costs a caller with cold caches some microseconds: none for the usual row.
        if type(features) is not dict:
            features = self._features(features)
        if not features:
            raise RejectedError(Reason.FEATURES_MISSING, "the row has no features")
        plain = False
        if self._summed:
            # Numbers have a sum, which takes a third of the time of asking each one what it is.
            try:
                plain = type(sum(features.values())) in _SUMS
            except Exception:
                plain = False
            self._summed = plain  # rows of other things come again
        if not plain and not PLAIN.issuperset(map(type, features.values())):
            features = {key: plain_value(value, key) for key, value in features.items()}
        if (
            type(outputs) is not float
            or not -_HIGHEST <= outputs <= _HIGHEST
            or self.output_names is not None
        ):
            outputs = self._outputs(outputs)
        if model is not None or self.model is None:
            model = self._other_model(model)
        row = Row(
            features,
            outputs,
            model,
            None if id is None else identity(id),
            now() if time is None else seconds(time),
            1.0 if weight is None else weight_of(weight),
        )
        try:
            data = self._encoder.encode(row)
        except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
            raise RejectedError(Reason.WRONG_TYPE, f"not a row: {error}") from None
        if len(data) > MAX_ROW_BYTES:
            raise RejectedError(
                Reason.TOO_LARGE, f"the row takes {len(data):,} bytes; at most {MAX_ROW_BYTES:,}"
            )
        return data

    def encode_batch(
        self,
        features: Any,
        outputs: Any,
        *,
        ids: Any = None,
        times: Any = None,
        weights: Any = None,
        model: str | None = None,
    ) -> Iterator[bytes | RejectedError]:
        """Yield every row as JSON, or what is wrong with it.

        ``features`` is (n, d) or a mapping (a data frame) of columns, ``outputs`` (n,), (n, c) or
        a mapping of columns; RejectedError is raised, before the first row, where their lengths differ.
        """
        names, rows, count = self._columns(features)
        if isinstance(outputs, Mapping):
            columns = [rows_of(column, count, "outputs") for column in outputs.values()]
            out: Any = [dict(zip(outputs, row, strict=True)) for row in zip(*columns, strict=True)]
        else:
            out = rows_of(outputs, count, "outputs")
        listed = [
            repeat(None, count) if given is None else rows_of(given, count, what)
            for given, what in ((ids, "ids"), (times, "times"), (weights, "weights"))
        ]
        return self._encoded(names, rows, out, *listed, model=model)

    def _encoded(
        self, names: tuple[str, ...], rows: Any, *others: Any, model: str | None
    ) -> Iterator[bytes | RejectedError]:
        for values, output, name, moment, weight in zip(rows, *others, strict=True):
            try:
                features = dict(zip(names, values, strict=True))
                yield self.encode(features, output, name, moment, weight, model)
            except RejectedError as error:
                yield error
            except Exception as error:  # an object with a mind of its own spoils its row only
                yield RejectedError(Reason.WRONG_TYPE, f"not a row: {error!r:.200}")

    def _other_model(self, model: str | None) -> str | None:
        """Return what the row has to say of its model: nothing where the message's header names it."""
        if model is None:
            raise RejectedError(
                Reason.NO_MODEL,
                "no model: Publisher(..., model='name') or publish(model='name')",
            )
        return None if model == self.model else model_name(model)

    def _features(self, features: Any) -> dict[Any, Any]:
        if type(features) is Numbers or (is_array(features) and features.ndim == 1):
            values = features.tolist()
        elif isinstance(features, (list, tuple)):
            values = one_row(features)
        elif isinstance(features, Mapping) or hasattr(features, "keys"):
            return dict(features)  # a pandas Series reads as a mapping too
        else:
            values = one_row(features)
        names = self.feature_names or self._named()
        if len(values) != len(names):
            raise RejectedError(
                Reason.WRONG_TYPE, f"{len(values)} feature values for {len(names)} feature_names"
            )
        return dict(zip(names, values, strict=True))

    def _outputs(self, outputs: Any) -> Any:
        if outputs is None:
            raise RejectedError(Reason.OUTPUTS_MISSING, "the row has no outputs")
        if isinstance(outputs, (float, int)):
            values = [output_number(outputs)]
        elif not is_array(outputs) and (isinstance(outputs, Mapping) or hasattr(outputs, "keys")):
            named = {name: output_number(value) for name, value in dict(outputs).items()}
            if not named:
                raise RejectedError(Reason.OUTPUTS_MISSING, "the row has no outputs")
            return named
        else:
            values = [output_number(value) for value in one_row(outputs)]
        if self.output_names is not None:
            if len(values) != len(self.output_names):
                raise RejectedError(
                    Reason.OUTPUTS_MISSING,
                    f"{len(values)} outputs for {len(self.output_names)} output_names",
                )
            return dict(zip(self.output_names, values, strict=True))
        if not values:
            raise RejectedError(Reason.OUTPUTS_MISSING, "the row has no outputs")
        # A missing single output stays a list: null alone is no output at all.
        return values[0] if len(values) == 1 and values[0] is not None else values

    def _columns(self, features: Any) -> tuple[tuple[str, ...], Any, int]:
        if isinstance(features, Mapping) or hasattr(features, "keys"):
            columns = {str(name): as_list(features[name]) for name in features.keys()}  # noqa: SIM118
            counts = {len(column) for column in columns.values()}
            if len(counts) != 1:
                raise RejectedError(
                    Reason.WRONG_TYPE, f"columns of one length expected, got {sorted(counts)}"
                )
            return tuple(columns), zip(*columns.values(), strict=True), counts.pop()
        names = self._named()
        rows = plain_matrix(features)
        if rows is not None and len(rows[0]) == len(names):
            return names, rows, len(rows)
        array = as_array(features)
        if array.ndim != 2 or array.shape[1] != len(names):
            raise RejectedError(
                Reason.WRONG_TYPE,
                f"features of shape (rows, {len(names)}) expected, got {array.shape}",
            )
        return names, array.tolist(), len(array)

    def _named(self) -> tuple[str, ...]:
        if self.feature_names is None:
            raise RejectedError(
                Reason.WRONG_TYPE,
                "features in an array have no names: Publisher(..., feature_names=[...]), "
                "or publish a mapping",
            )
        return self.feature_names


def _names(names: Sequence[str] | None, what: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    found = tuple(str(name) for name in names)
    if not found or len(set(found)) != len(found):
        raise RejectedError(Reason.WRONG_TYPE, f"{what} must be distinct names, got {found!r:.200}")
    return found
