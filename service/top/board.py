"""What is known of every model, and how far the topics go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from attributary.service.model_board import ModelBoard
from attributary.service.subscription import Result


@dataclass
class Board:
    """All models, and the ends of the topics as the broker tells them."""

    broker: str
    models: dict[str, ModelBoard] = field(default_factory=dict)
    dead_letters: int = 0
    skipped: int = 0
    rows_ends: Mapping[str, int] = field(default_factory=dict)
    committed: Mapping[str, int] = field(default_factory=dict)

    def add(self, message: Result) -> None:
        """Take a message of any model."""
        board = self.models.setdefault(message.model, ModelBoard(message.model))
        board.add(message)

    @property
    def lag(self) -> int:
        """Messages in the rows topic that no result and no commit covers yet."""
        covered = dict(self.committed)
        for model in self.models.values():
            if model.newest is not None:
                for source, (_, upto) in model.newest.accounting.offsets.items():
                    covered[source] = max(upto, covered.get(source, 0))
        return sum(max(0, end - covered.get(source, 0)) for source, end in self.rows_ends.items())

    @property
    def gaps(self) -> int:
        """Offsets that the workers have missed: every model's message tells those of its whole partition."""
        found = [m.newest.accounting.gaps for m in self.models.values() if m.newest is not None]
        return max(found, default=0)
