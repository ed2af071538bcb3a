"""The rows of a table as messages: Arrow record batches, or JSON arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from attributary.schemas.arrow import ARROW_CONTENT, ID, TIME, WEIGHT, encode_arrow_rows
from attributary.schemas.arrow_columns import numbers
from attributary.schemas.row import JSON_CONTENT
from attributary.service.columns import Columns
from attributary.service.event_times import EventTimes
from attributary.service.row_encoder import MAX_ROW_BYTES, RowEncoder
from attributary.service.table_files import Reject


@dataclass(frozen=True)
class Message:
    """Encoded rows. ``upto``: rows, or lines, of the source that are done with once these are."""

    value: bytes
    rows: int
    content_type: str
    upto: int = 0


class TableMessages:
    """Turns record batches into messages of at most ``batch_rows`` rows, without the first ``skip`` rows."""

    def __init__(
        self,
        model: str,
        columns: Columns,
        *,
        as_arrow: bool,
        batch_rows: int,
        times: EventTimes,
        reject: Reject,
        skip: int = 0,
    ) -> None:
        self._model = model
        self._columns = columns
        self._as_arrow = as_arrow
        self._batch_rows = batch_rows
        self._times = times
        self._reject = reject
        self._encoder = RowEncoder(model)
        self._skip = skip
        self._row = 0

    def encode(self, batch: Any) -> Iterator[Message]:
        """Yield the messages of one record batch; rows with a bad time or weight are rejected."""
        left_out = min(max(self._skip - self._row, 0), batch.num_rows)
        self._row += left_out
        if left_out == batch.num_rows:
            return
        table = pa.Table.from_batches([batch]).slice(left_out)
        weight = self._weight(table)
        time, problems = None, dict[int, str]()
        if (name := self._columns.time) is not None:
            time, problems = self._times.column(table[name], name)
        if weight is not None:
            unfit = {
                int(i): "weight must be above 0 and finite" for i in np.flatnonzero(weight <= 0)
            }
            problems = {**problems, **unfit}
        good = np.ones(table.num_rows, dtype=bool)
        for index, problem in sorted(problems.items()):
            good[index] = False
            self._reject(f"row {self._row + index + 1}: {problem}")
        places = self._row + 1 + np.flatnonzero(good)
        self._row += table.num_rows
        if not good.all():
            table = table.filter(pa.array(good))
            weight = None if weight is None else weight[good]
            time = None if time is None else time[good]
        for start in range(0, table.num_rows, self._batch_rows):
            cut = slice(start, start + self._batch_rows)
            yield from self._pack(
                table.slice(start, self._batch_rows),
                None if time is None else time[cut],
                None if weight is None else weight[cut],
                places[cut],
            )

    def _pack(self, table: Any, time: Any, weight: Any, places: Any) -> Iterator[Message]:
        pack = self._arrow if self._as_arrow else self._json
        value, rows = pack(table, time, weight)
        if len(value) <= MAX_ROW_BYTES:
            if rows:
                content = ARROW_CONTENT if self._as_arrow else JSON_CONTENT
                yield Message(value, rows, content, int(places[-1]))
        elif table.num_rows == 1:
            self._reject(f"one row takes {len(value):,} bytes; at most {MAX_ROW_BYTES:,}")
        else:
            half = table.num_rows // 2
            for cut in (slice(0, half), slice(half, None)):
                yield from self._pack(
                    table.slice(cut.start, half if cut.stop else None),
                    None if time is None else time[cut],
                    None if weight is None else weight[cut],
                    places[cut],
                )

    def _arrow(self, table: Any, time: Any, weight: Any) -> tuple[bytes, int]:
        columns = {name: table[name] for name in (*self._columns.features, *self._columns.outputs)}
        if self._columns.id is not None:
            columns[ID] = table[self._columns.id].cast(pa.string())
        if time is not None:
            milliseconds = np.rint(time * 1000).astype(np.int64)
            columns[TIME] = pa.array(milliseconds).cast(pa.timestamp("ms", tz="UTC"))
        if weight is not None:
            columns[WEIGHT] = pa.array(weight)
        return encode_arrow_rows(self._model, columns, self._columns.outputs), table.num_rows

    def _json(self, table: Any, time: Any, weight: Any) -> tuple[bytes, int]:
        names = self._columns
        rows = []
        for row in self._encoder.encode_batch(
            {name: table[name].to_pylist() for name in names.features},
            {name: table[name].to_pylist() for name in names.outputs},
            ids=None if names.id is None else table[names.id].to_pylist(),
            times=time,
            weights=weight,
        ):
            if isinstance(row, bytes):
                rows.append(row)
            else:
                self._reject(str(row))
        return b"[" + b",".join(rows) + b"]", len(rows)

    def _weight(self, table: Any) -> Any:
        if self._columns.weight is None:
            return None
        weight = numbers(table[self._columns.weight], self._columns.weight)
        return np.where(np.isfinite(weight), weight, 0.0)
