"""Messages of another system to rows: read, paired, named and checked, every message to one outcome."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from attributary.schemas.adapters.formats import Adapter
from attributary.schemas.adapters.inference import Half, Inference, Skipped, Time, to_rows
from attributary.schemas.adapters.message import ForeignMessage
from attributary.schemas.adapters.pairing import Limits, Pairing, Place
from attributary.schemas.errors import RejectedError
from attributary.schemas.row import Row, RowError


@dataclass(frozen=True)
class Group:
    """The rows of one inference, and the places of the messages that it was made of."""

    rows: list[Row]
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Converted:
    """What became of a message: groups of rows, and errors by the position of the row."""

    groups: list[Group] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)


class Converter:
    """Takes messages one by one. ``skipped`` counts by reason those that are not of what was asked for;
    ``pairing`` holds the halves that wait, and counts the lost ones."""

    def __init__(self, adapter: Adapter, limits: Limits | None = None) -> None:
        self.adapter = adapter
        self.pairing = Pairing(limits)
        self.skipped: Counter[str] = Counter()

    def add(self, message: ForeignMessage, place: Place, now: float, *, named: bool) -> Converted:
        """Return the rows that the message makes, alone or with one that waited; RejectedError: none.

        ``named``: rows without an id get the message's place as theirs.
        """
        self.pairing.expire(now)
        parts = self.adapter.read(message)
        found = Converted()
        position = 0
        for number, part in enumerate(parts):
            if isinstance(part, Skipped) or self._is_other(part.facts.model):
                self.skipped[part.reason if isinstance(part, Skipped) else "other_model"] += 1
                continue
            places: tuple[Place, ...] = (place,)
            timestamp = message.timestamp
            if isinstance(part, Half):
                size = len(message.value) // len(parts)
                pair = self.pairing.add(part, place, size, now, message.timestamp)
                if pair is None:
                    continue
                inference, places, timestamp = pair
            else:
                inference = part
            if self.adapter.naming.only and inference.facts.model is None:
                self.skipped["other_model"] += 1
                continue
            identity = _identity(places[0], number if len(parts) > 1 else None) if named else None
            position = self._join(inference, identity, timestamp, places, found, position)
        if found.errors and not found.groups:
            first = found.errors[0]
            raise RejectedError(first.reason, first.message, rows=len(found.errors))
        return found

    def remember(self, message: ForeignMessage) -> None:
        """Take note of a message that was counted before this converter was made: so that what repeats it
        is not counted again."""
        for part in self.adapter.read(message):
            if isinstance(part, Half):
                self.pairing.close(part.pair)

    def _join(
        self,
        inference: Inference,
        identity: str | None,
        timestamp: int | None,
        places: tuple[Place, ...],
        found: Converted,
        position: int,
    ) -> int:
        """Add an inference's rows, or why there are none; return the next row's position."""
        count = len(inference.request.rows)
        time: Time = None if timestamp is None else timestamp / 1000
        try:
            made = to_rows(inference, self.adapter.naming, place=identity, time=time)
        except RejectedError as error:
            found.errors.extend(
                RowError(position + row, error.reason, str(error)) for row in range(count)
            )
        else:
            found.groups.append(Group(made.rows, places))
            found.errors.extend(
                RowError(position + error.index, error.reason, error.message)
                for error in made.errors
            )
        return position + count

    def _is_other(self, model: str | None) -> bool:
        only = self.adapter.naming.only
        return bool(only) and model is not None and model not in only


def _identity(place: Place, number: int | None) -> str:
    (topic, partition), offset = place
    name = f"{topic}/{partition}/{offset}"
    return name if number is None else f"{name}/{number}"
