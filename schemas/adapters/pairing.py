"""Requests and responses that come one by one: bounded in number, bytes and time, every loss counted."""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from attributary.schemas.adapters.inference import Half, Inference, join

Log = tuple[str, int]  # topic and partition


class Place(NamedTuple):
    """Where a half was read."""

    log: Log
    offset: int


@dataclass(frozen=True)
class Limits:
    """What may wait for its other half: so many halves and bytes of messages, each for so long."""

    halves: int = 100_000
    bytes: int = 64 * 2**20
    seconds: float = 60.0


class Paired(NamedTuple):
    """An inference, and where its halves were read."""

    inference: Inference
    places: tuple[Place, Place]
    request_timestamp: int | None


class _Waiting(NamedTuple):
    half: Half
    place: Place
    size: int
    since: float
    timestamp: int | None


class Pairing:
    """Halves that wait. ``lost`` counts by reason those that make no row:

    ``unanswered`` (no response in time), ``unasked`` (no request in time), ``crowded_out`` (the oldest, when
    too many wait), ``late`` (the other half was given up before), ``repeated`` (that half came already),
    ``failed`` (the model answered with an error: two halves).
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._waiting: OrderedDict[tuple[str, ...], _Waiting] = OrderedDict()
        # How many halves wait of every offset: a message may hold several.
        self._offsets: dict[Log, OrderedDict[int, int]] = {}
        self._closed: OrderedDict[tuple[str, ...], bool] = OrderedDict()
        self.lost: Counter[str] = Counter()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, half: Half, place: Place, size: int, now: float, timestamp: int | None = None
    ) -> Paired | None:
        """Take a half of ``size`` bytes; return the pair where the other one waited."""
        if (paired := self._closed.get(half.pair)) is not None:
            self.lost["repeated" if paired else "late"] += 1
            return None
        waiting = self._waiting.get(half.pair)
        if waiting is not None and waiting.half.response == half.response:
            self.lost["repeated"] += 1
            return None
        if waiting is None:
            self._keep(_Waiting(half, place, size, now, timestamp))
            return None
        self._forget(half.pair)
        self._close(half.pair, paired=True)
        mine = _Waiting(half, place, size, now, timestamp)
        request, response = (waiting, mine) if half.response else (mine, waiting)
        inference = join(request.half, response.half)
        if inference is None:
            self.lost["failed"] += 2
            return None
        return Paired(inference, (request.place, response.place), request.timestamp)

    def close(self, pair: tuple[str, ...]) -> None:
        """Take note that a pair is complete elsewhere: its halves are repetitions from now on."""
        if pair not in self._waiting:
            self._close(pair, paired=True)

    def expire(self, now: float) -> None:
        """Give up what has waited too long."""
        while self._waiting:
            pair, oldest = next(iter(self._waiting.items()))
            if now - oldest.since < self._limits.seconds:
                return
            self._give_up(pair, "unasked" if oldest.half.response else "unanswered")

    def end(self) -> None:
        """Give up everything: nothing more will come."""
        for pair, waiting in list(self._waiting.items()):
            self._give_up(pair, "unasked" if waiting.half.response else "unanswered")

    def oldest(self, log: Log) -> int | None:
        """Return the first offset of a log that still waits: reading must begin there again."""
        return next(iter(self._offsets.get(log, ())), None)

    def drop(self, log: Log) -> None:
        """Forget what waits from a log that somebody else reads from now on; nothing is lost by it."""
        for pair, waiting in list(self._waiting.items()):
            if waiting.place.log == log:
                self._forget(pair)

    def _keep(self, waiting: _Waiting) -> None:
        self._waiting[waiting.half.pair] = waiting
        offsets = self._offsets.setdefault(waiting.place.log, OrderedDict())
        offsets[waiting.place.offset] = offsets.get(waiting.place.offset, 0) + 1
        self.bytes += waiting.size
        while len(self._waiting) > self._limits.halves or self.bytes > self._limits.bytes:
            self._give_up(next(iter(self._waiting)), "crowded_out")

    def _give_up(self, pair: tuple[str, ...], reason: str) -> None:
        self._forget(pair)
        self._close(pair, paired=False)
        self.lost[reason] += 1

    def _forget(self, pair: tuple[str, ...]) -> None:
        waiting = self._waiting.pop(pair)
        self.bytes -= waiting.size
        offsets = self._offsets[waiting.place.log]
        offsets[waiting.place.offset] -= 1
        if not offsets[waiting.place.offset]:
            del offsets[waiting.place.offset]
        if not offsets:
            del self._offsets[waiting.place.log]

    def _close(self, pair: tuple[str, ...], *, paired: bool) -> None:
        self._closed[pair] = paired
        if len(self._closed) > self._limits.halves:
            self._closed.popitem(last=False)
