"""What is known of every model, and how far the topics go."""

from __future__ import annotations

from dataclasses import dataclass, field

from attributary.service.accounting import Accounting
from attributary.service.model_board import ModelBoard


@dataclass
class Board:
    """All models, or the one that is wanted, and what the topics tell of rows on their way to results.

    ``registered`` are the models that have a card, ``named`` those that results were seen of. ``caught_up``:
    the newest results are read. ``older`` is how much of the older ones is read, while they are being read;
    ``complete``: there are no others.
    ``accounting`` is None as long as the manifests are not read. ``answered`` is when the broker last did
    (milliseconds), ``trouble`` what it said since, or "" where it says nothing.
    """

    broker: str
    model: str | None = None
    models: dict[str, ModelBoard] = field(default_factory=dict)
    registered: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    skipped: int = 0
    caught_up: bool = False
    older: float | None = None
    complete: bool = False
    dead_letters: int = 0
    accounting: Accounting | None = None
    answered: int | None = None
    trouble: str | None = None

    def wants(self, model: str) -> bool:
        """Whether that model is to be shown."""
        return self.model in (None, model)

    @property
    def known(self) -> list[str]:
        """Names of all models that anything tells of."""
        books = {} if self.accounting is None else self.accounting.models
        counted = {name for name, account in books.items() if name and account.accepted}
        return sorted({*self.models, *self.registered, *self.named, *counted})

    @property
    def quiet(self) -> list[str]:
        """Models to be shown that no result was read of."""
        return [name for name in self.known if self.wants(name) and name not in self.models]

    @property
    def lag(self) -> int | None:
        """Messages in the rows topic that are not counted yet; None: not known."""
        return None if self.accounting is None else self.accounting.lag

    @property
    def unmerged(self) -> int:
        """Rows that are counted and not in the models' results yet, where the manifests reach back to the
        first row: results count from there."""
        books = self.accounting
        if (
            books is None
            or not self.caught_up
            or any(source.start > 0 for source in books.sources.values())
        ):
            return 0
        behind = 0
        for name, account in books.models.items():
            model = self.models.get(name)
            if model is not None and model.newest is not None:
                behind += max(0, account.accepted - model.newest.accounting.rows_accepted)
            elif self.complete and self.wants(name):
                behind += account.accepted
        return behind

    @property
    def gaps(self) -> int:
        """Offsets that nobody counted, as the manifests tell; before they are read, as the results do."""
        if self.accounting is not None:
            return self.accounting.gaps
        found = [m.newest.accounting.gaps for m in self.models.values() if m.newest is not None]
        return max(found, default=0)
