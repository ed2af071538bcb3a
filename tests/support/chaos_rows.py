"""The rows of a fault run: known, seeded, and partly malformed; and what of them lies in the log."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from attributary import Publisher
from attributary.schemas.card import Feature, Lifetime, ModelCard, Tumbling
from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import Origin
from attributary.schemas.row import JSON_CONTENT
from attributary.schemas.topics import Topics
from attributary.service.reader import Reader

MODEL = "chaos"
NAMES = ("heavy", "flag", "gappy", "skewed", "noise")
_START = 1_700_000_000.0
_SPAN = 240.0
_MISSING = 0.15
_MALFORMED = 0.002
_ROOM_SECONDS = 120.0

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def card() -> ModelCard:
    """Return the model's card: windows of a minute beside the lifetime."""
    return ModelCard(
        model=MODEL,
        features=[Feature(name=name) for name in NAMES],
        outputs=["y"],
        windows=[Tumbling(seconds=60.0), Lifetime()],
    )


class Bad(NamedTuple):
    """A malformed message: how many of its rows are rejected, and the good rows beside them."""

    rejected: int
    good: tuple[int, ...] = ()


@dataclass(frozen=True)
class Message:
    """One step of the publisher: ``rows`` of the good rows one by one, or ``value`` as it is."""

    rows: range
    value: bytes | None = None


@dataclass(frozen=True)
class Workload:
    """Good rows by number (X (n, 5), y (n,), times (n,) in seconds) and every malformed message by its bytes.

    ``messages`` cover all of it in order: runs of rows that the publisher puts together as it likes, runs of
    messages of one row each, and malformed ones in between.
    """

    X: Floats
    y: Floats
    times: Floats
    messages: list[Message]
    bad: dict[bytes, Bad]

    @classmethod
    def draw(cls, rows: int, seed: int) -> Workload:
        """Draw ``rows`` good rows. Their times cover four minutes, out of order by seconds."""
        rng = np.random.default_rng([seed, 1])
        heavy = rng.standard_t(2, rows)
        flag = (rng.random(rows) < 0.3).astype(float)
        gappy = rng.standard_normal(rows)
        skewed = rng.lognormal(size=rows)
        y = np.arctan(heavy) + 0.8 * flag - 0.6 * gappy - 0.3 * skewed + rng.standard_normal(rows)
        gappy[rng.random(rows) < _MISSING] = np.nan
        X = np.column_stack([heavy, flag, gappy, skewed, rng.standard_normal(rows)])
        times = _START + np.linspace(0, _SPAN, rows, endpoint=False) + rng.normal(0, 1.5, rows)
        workload = cls(X, y, times.round(3), [], {})
        workload._cut(rng)
        return workload

    def _cut(self, rng: np.random.Generator) -> None:
        at, single = 0, False
        while at < len(self.y):
            run = range(at, min(at + int(rng.integers(1, 300)), len(self.y)))
            if single:
                self.messages.extend(Message(range(i, i + 1), self.encoded(i)) for i in run)
            else:
                self.messages.append(Message(run))
            at, single = run.stop, not single
            for _ in range(rng.binomial(len(run), _MALFORMED)):
                at = self._malformed(at, int(rng.integers(5)))

    def _malformed(self, at: int, kind: int) -> int:
        """Add a malformed message, of bytes that no other has; return the next good row's number."""
        mark = f"bad-{len(self.bad)}"
        features = dict.fromkeys(NAMES, 0.5)
        row = {"model": MODEL, "features": features, "outputs": 1.0, "id": mark, "time": _START}
        good: tuple[int, ...] = ()
        if kind == 0:
            value = f"{{cut off {mark}".encode()
        elif kind == 1:
            value = json.dumps({key: row[key] for key in ("model", "features", "id")}).encode()
        elif kind == 2:
            value = json.dumps({**row, "time": time.time() + 1e6}).encode()
        elif kind == 3:
            value = json.dumps({**row, "features": {**features, "heavy": "much"}}).encode()
        else:
            good = tuple(range(at, min(at + 2, len(self.y))))
            rows = [json.dumps({**row, "outputs": "high"}).encode(), *map(self.encoded, good)]
            value = b"[" + b",".join(rows) + b"]"
        self.bad[value] = Bad(1, good)
        self.messages.append(Message(range(at, at + len(good)), value))
        return at + len(good)

    def encoded(self, row: int) -> bytes:
        """Return a good row as JSON."""
        return json.dumps({"model": MODEL, **self._fields(row)}).encode()

    def _fields(self, row: int) -> dict[str, object]:
        return {
            "features": _features(self.X[row]),
            "outputs": float(self.y[row]),
            "id": row,
            "time": float(self.times[row]),
        }

    @property
    def rejected(self) -> int:
        """Rows that must be rejected."""
        return sum(bad.rejected for bad in self.bad.values())

    @property
    def total(self) -> int:
        """All rows, good and bad."""
        return len(self.y) + self.rejected

    def shares(self, count: int) -> Iterator[Sequence[Message]]:
        """Yield all messages in order, in ``count`` shares."""
        bounds = np.linspace(0, len(self.messages), count + 1).astype(int).tolist()
        for start, stop in pairwise(bounds):
            yield self.messages[start:stop]

    def publish(self, publisher: Publisher, messages: Sequence[Message]) -> None:
        """Publish as fast as the publisher's buffer takes it."""
        for message in messages:
            size = 256 if message.value is None else len(message.value)
            if not publisher.wait_for_room(len(message.rows) + 1, 300 * size, _ROOM_SECONDS):
                raise TimeoutError(f"the publisher's buffer was full for {_ROOM_SECONDS:.0f} s")
            if message.value is None:
                for row in message.rows:
                    publisher.publish(
                        _features(self.X[row]),
                        float(self.y[row]),
                        id=row,
                        time=float(self.times[row]),
                    )
            else:
                rows = self.bad[message.value].rejected if message.value in self.bad else 0
                publisher.publish_message(message.value, rows + len(message.rows), JSON_CONTENT)


def _features(x: Floats) -> dict[str, float | None]:
    return {
        name: None if value != value else value
        for name, value in zip(NAMES, x.tolist(), strict=True)
    }


@dataclass(frozen=True)
class InLog:
    """What the rows topic holds: every good row's copies, and where malformed messages lie."""

    copies: Ints
    letters: frozenset[Origin]
    rejected: int
    strange: int

    @property
    def good(self) -> int:
        """Good rows, copies counted."""
        return int(self.copies.sum())

    @property
    def repeated(self) -> int:
        """Copies beyond the first: the publisher sends again what it does not know to have arrived."""
        return int(np.maximum(self.copies - 1, 0).sum())

    @property
    def lost(self) -> int:
        """Good rows that are not there."""
        return int((self.copies == 0).sum())


def read_log(connection: Connection, topics: Topics, workload: Workload) -> InLog:
    """Read the rows topic from end to end, with nothing of the workers' code but the reader."""

    async def read() -> InLog:
        reader = Reader(connection, [topics.rows], from_beginning=True, follow=False)
        await reader.start()
        counts: Counter[int] = Counter()
        letters: set[Origin] = set()
        rejected = strange = 0
        try:
            while (records := await reader.read(5000)) is not None:
                for record in records:
                    bad = workload.bad.get(record.value)
                    if bad is not None:
                        letters.add(Origin(record.topic, record.partition, record.offset))
                        rejected += bad.rejected
                        counts.update(bad.good)
                        continue
                    rows = json.loads(record.value)
                    ids = [row["id"] for row in (rows if isinstance(rows, list) else [rows])]
                    counts.update(ids)
                    strange += sum(not 0 <= row < len(workload.y) for row in ids)
        finally:
            await reader.stop()
        copies = np.array([counts[row] for row in range(len(workload.y))], dtype=np.int64)
        return InLog(copies, frozenset(letters), rejected, strange)

    return asyncio.run(read())
