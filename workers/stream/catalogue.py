"""Model cards and grids as the control topics give them; every worker holds the same."""

from __future__ import annotations

import logging

from attributary.schemas.card import ModelCard
from attributary.schemas.errors import RejectedError
from attributary.schemas.grid import GridRecord
from attributary.workers.stream.epoch import Epoch
from attributary.workers.stream.layout import Layout

_log = logging.getLogger(__name__)


class ControlCatalogue:
    """Cards by model and grids by (model, epoch), fed in the topics' order."""

    def __init__(self) -> None:
        self.version = 0
        #: How far the models topic has been read: the offset after the newest card's.
        self.cards_read = 0
        self._cards: dict[str, ModelCard] = {}
        self._epochs: dict[str, dict[int, Epoch]] = {}
        # What ``epoch`` returns, until a card or grid comes: a wide card takes milliseconds to compare.
        self._current: dict[str, Epoch | None] = {}
        self._unregistered: int | None = None

    def add_card(self, key: bytes | None, value: bytes | None, offset: int | None = None) -> None:
        """Take a record of the models topic; a null value withdraws the card of its key.

        ``offset`` None: the one after the last.
        """
        self.cards_read = max(self.cards_read, (self.cards_read if offset is None else offset) + 1)
        if value is None:
            self._cards.pop((key or b"").decode("utf-8", "replace"), None)
        else:
            try:
                card = ModelCard.from_bytes(value)
            except RejectedError as error:
                _log.warning("ignored a model card that cannot be read: %s", error)
                self._current.clear()
                return
            self._cards[card.model] = card
            for number, epoch in self._epochs.get(card.model, {}).items():
                self._epochs[card.model][number] = epoch.with_strict(card.strict)
        self._changed()

    def add_grid(self, value: bytes | None) -> None:
        """Take a record of the grids topic; only the first one of an epoch holds."""
        if value is None:
            return
        try:
            epoch = self._read(value)
            record = epoch.record
            epochs = self._epochs.setdefault(record.model, {})
            if record.epoch in epochs:
                return
            card = self._cards.get(record.model)
            epoch = epoch.with_strict(card is not None and card.strict)
            if record.layout != record.epoch and not epoch.continues(epochs.get(record.layout)):
                raise ValueError(
                    f"epoch {record.epoch} of {record.model!r} says that it continues layout "
                    f"{record.layout}, whose columns, outputs, panes or samples differ"
                )
            epochs[record.epoch] = epoch
        except (RejectedError, ValueError) as error:
            _log.warning("ignored a grid that cannot be read: %s", error)
            return
        self._changed()

    def complete(self) -> None:
        """Note that both topics have been read to their ends: no grid so far rests on a card to come.

        Where the models topic was made anew, its offsets begin again below those that old grids name.
        """
        claims = [e.record.cards for epochs in self._epochs.values() for e in epochs.values()]
        self.cards_read = max([self.cards_read, *claims])
        self._changed()

    @staticmethod
    def _read(value: bytes) -> Epoch:
        return Epoch.from_record(GridRecord.from_bytes(value))

    def _changed(self) -> None:
        self.version += 1
        self._current.clear()
        self._unregistered = None

    @property
    def unregistered(self) -> int:
        """Models that have a grid and no card: those that rows alone have made known."""
        if self._unregistered is None:
            self._unregistered = len(self._epochs.keys() - self._cards.keys())
        return self._unregistered

    @property
    def models(self) -> set[str]:
        """Models that have a card or a grid."""
        return {*self._cards, *self._epochs}

    def card(self, model: str) -> ModelCard | None:
        """Return the model's card, or None."""
        return self._cards.get(model)

    def epoch(self, model: str) -> Epoch | None:
        """Return the model's newest grid epoch, or None where its card needs another.

        One that was proposed by a worker that had read more cards is taken as it is: the model's card may be
        one of those. Else two workers that learn of a new card one after the other would propose the old and
        the new layout in turn.
        """
        epochs = self._epochs.get(model)
        if not epochs:
            return None
        if model not in self._current:
            newest = epochs[max(epochs)]
            ahead = newest.record.cards > self.cards_read
            served = ahead or newest.serves(self._cards.get(model))
            self._current[model] = newest if served else None
        return self._current[model]

    def epoch_in(self, model: str, partition: int, block: int) -> Epoch | None:
        """Return the epoch for rows in this block: the newest, wherever they come from."""
        return self.epoch(model)

    def next_epoch(self, model: str) -> int:
        """Return the number that a new epoch of the model takes."""
        return max(self._epochs.get(model, {}), default=-1) + 1

    def epoch_of(self, model: str, number: int) -> Epoch | None:
        """Return one epoch of a model, or None where it is not known (yet)."""
        return self._epochs.get(model, {}).get(number)

    def layouts(self, model: str) -> dict[int, Layout]:
        """Return the layout of every epoch of a model."""
        return {number: epoch.layout for number, epoch in self._epochs.get(model, {}).items()}
