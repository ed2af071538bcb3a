"""The source partitions of the simulation: records, good and bad, and what of them is to be counted."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from attributary.schemas.arrow import encode_arrow_rows
from attributary.workers.stream.decode import Record

PANE, WINDOW, LATENESS = 4_000, 4_000, 4_000
FIRST = 1_700_000_000_000

#: How far a row's event time lies behind the broker's clock: mostly not at all, late, too late.
_BEHIND = (0,) * 12 + (500, 3_000, 15_000, 200_000)
_TICKS = (0, 1, 50, 300, 300, 2_000)
_SHARE_BAD, _SHARE_ARROW, _SHARE_PARTLY_BAD, _SHARE_MARKERS = 0.12, 0.02, 0.06, 0.03


class SimulatedRow(NamedTuple):
    """A good row: x0 is its number, by which the exact accumulators know it."""

    number: int
    model: str
    time: int
    values: tuple[float, float, float]
    #: It cannot be late for its window, in whatever order partitions are read.
    in_time: bool
    #: Topic's partition, offset, and position in the record: what decides whether a light pass keeps it.
    place: tuple[int, int, int] = (0, 0, 0)


@dataclass
class Written:
    """What one record holds: rows to count, and (model, reason) of the others."""

    rows: list[SimulatedRow] = field(default_factory=list)
    rejected: list[tuple[str, str]] = field(default_factory=list)


def _good(model: str, **fields: str) -> bytes:
    found = {"features": '{"x0": 1, "x1": 2}', "outputs": "[3]", **fields}
    parts = ", ".join(f'"{name}": {value}' for name, value in found.items())
    return f'{{"model": "{model}", {parts}}}'.encode()


#: (Whether the model can be read, the reason, the message of a model at a time in ms.)
_BAD: tuple[tuple[bool, str, Callable[[str, int], bytes]], ...] = (
    (False, "empty", lambda model, time: b""),
    (False, "empty", lambda model, time: b"[]"),
    (False, "not_decodable", lambda model, time: b"\x00\xff\xfe garbage"),
    (False, "not_decodable", lambda model, time: b'{"model": "a"'),
    (False, "not_decodable", lambda model, time: b"\xff\xff\xff\xff\x10\x00\x00\x00"),
    (False, "wrong_type", lambda model, time: _good(model, features="[1]")),
    (False, "no_model", lambda model, time: _good("", features='{"x0": 1}')),
    (True, "outputs_missing", lambda model, time: _good(model, outputs="[1, 2]")),
    (True, "wrong_type", lambda model, time: _good(model, features='{"x0": "1", "x1": 2}')),
    (True, "features_missing", lambda model, time: _good(model, features='{"z": 1}')),
    (True, "bad_time", lambda model, time: _good(model, time='"yesterday"')),
    (True, "far_future", lambda model, time: _good(model, time=str(time / 1000 + 4000))),
    (True, "far_future", lambda model, time: _good(model, time=str(time / 1000 + 10**8))),
)


class Source:
    """One source partition. ``width``: at most so many rows in a record."""

    def __init__(self, partition: int, rng: random.Random, numbers: Numbers, width: int) -> None:
        self.partition = partition
        self.records: list[Record] = []
        #: What every record holds, by offset; retention does not forget it.
        self.written: dict[int, Written] = {}
        #: Where the log begins now.
        self.beginning = rng.choice((0, 0, 5, 8))
        #: The offset after the last record.
        self.end = self.beginning
        self._rng = rng
        self._numbers = numbers
        self._width = width
        self._clock = FIRST + rng.randrange(5000)
        self._highest: dict[str, int] = {}

    def append(self, model: str, *, plain: bool = False) -> None:
        """Write one record: rows of a model, or something that is none. ``plain``: good and in time."""
        rng = self._rng
        self._clock += rng.choice(_TICKS)
        # An offset without a record, as a transaction's marker leaves it.
        self.end += rng.random() < _SHARE_MARKERS
        written = self.written[self.end] = Written()
        if not plain and rng.random() < _SHARE_BAD:
            readable, reason, message = rng.choice(_BAD)
            value = message(model, self._clock)
            written.rejected.append((model if readable else "", reason))
        else:
            value = self._rows(model, written, plain=plain)
        self.records.append(Record(self.end, self._clock, value, b"k"))
        self.end += 1

    def read(self, position: int, most: int) -> list[Record]:
        """Return records from an offset on."""
        records = self.records
        at = len(records)
        while at and records[at - 1].offset >= position:
            at -= 1
        return records[at : at + most]

    def truncate(self, beginning: int) -> None:
        """Let retention take the records before an offset."""
        self.beginning = beginning
        self.records = [record for record in self.records if record.offset >= beginning]

    def _rows(self, model: str, written: Written, *, plain: bool) -> bytes:
        rng = self._rng
        rows = [self._row(model, plain) for _ in range(rng.randint(1, self._width))]
        places = list(range(len(rows)))
        if not plain and rng.random() < _SHARE_ARROW:
            columns: dict[str, list[float]] = {
                name: [row.values[at] for row in rows] for at, name in enumerate(("x0", "x1", "y"))
            }
            columns["_time"] = [row.time / 1000 for row in rows]
            written.rows.extend(self._placed(rows, places))
            return encode_arrow_rows(model, columns, ["y"])
        found = [
            f'{{"model":"{model}","features":{{"x0":{row.values[0]},"x1":{row.values[1]}}},'
            f'"outputs":[{row.values[2]}]'
            + ("}" if row.time == self._clock else f',"time":{row.time / 1000}}}')
            for row in rows
        ]
        if not plain and rng.random() < _SHARE_PARTLY_BAD:
            at = rng.randint(0, len(found))
            found.insert(at, f'{{"model":"{model}","outputs":1}}')
            places = [place + (place >= at) for place in places]
            written.rejected.append(("", "wrong_type"))
        written.rows.extend(self._placed(rows, places))
        return (f"[{','.join(found)}]" if len(found) > 1 else found[0]).encode()

    def _placed(self, rows: list[SimulatedRow], places: list[int]) -> list[SimulatedRow]:
        return [
            row._replace(place=(self.partition, self.end, place))
            for row, place in zip(rows, places, strict=True)
        ]

    def _row(self, model: str, plain: bool) -> SimulatedRow:
        time = self._clock - (0 if plain else self._rng.choice(_BEHIND))
        highest = self._highest.get(model, time)
        self._highest[model] = max(highest, time)
        number, values = self._numbers.draw()
        end = time // WINDOW * WINDOW + WINDOW
        return SimulatedRow(number, model, time, values, end + LATENESS > highest)


#: The kinds of values that rows have: x0 the row's number; few, which a grid's cells hold apart; any.
Values = Literal["numbered", "few", "any"]
#: Edges of x0, x1 and y that suit the values.
EDGES: dict[Values, list[list[float]]] = {
    "numbered": [[4, 8, 16, 32], [0, 1, 2, 3], [-2, 0, 2, 4]],
    "few": [[0, 1, 2, 3, 4, 5, 6, 7], [0, 1, 2, 3, 3, 3, 3, 3], [-3, -2, -1, 0, 1, 2, 3, 4]],
    "any": [
        [-1.5, -0.7, -0.3, 0.0, 0.3, 0.7, 1.5],
        [0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.2],
        [-2.75, -1.55, -0.95, -0.5, -0.05, 0.55, 1.75],
    ],
}


class Numbers:
    """Numbers rows, and draws their values."""

    def __init__(self, rng: random.Random, values: Values) -> None:
        self._rng = rng
        self._values = values
        self._next = 0

    def draw(self) -> tuple[int, tuple[float, float, float]]:
        """Return a row's number and (x0, x1, y)."""
        rng = self._rng
        self._next += 1
        if self._values == "any":
            x0, x1 = rng.gauss(0, 1), rng.lognormvariate(0, 1)
            return self._next, (x0, x1, x0 - 0.5 * x1 + rng.gauss(0, 1))
        x1 = rng.choice((0, 0, 1, 2, 3))
        x0 = self._next if self._values == "numbered" else self._next % 8
        return self._next, (x0, x1, rng.choice((-3, -1, 0, 1, 2)) + x1)
