"""What the ledgers of all source partitions say of one model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from attributary.schemas.attribution import Accounting
from attributary.workers.stream.held import SourceKey
from attributary.workers.stream.ledger import SourceLedger
from attributary.workers.stream.lightweight import Tally


class ModelBooks:
    """Rows of one model accepted and rejected so far, and the offsets missing, over ``sources``."""

    def __init__(self, model: str, sources: Mapping[SourceKey, SourceLedger]) -> None:
        self._sources = sources
        totals = [ledger.totals(model) for ledger in sources.values()]
        self.accepted = sum(each.accepted for each in totals)
        self.rejected: Counter[str] = Counter()
        for each in totals:
            self.rejected.update(each.rejected)
        self.gaps = sum(ledger.gap_offsets for ledger in sources.values())

    @property
    def key(self) -> tuple[int, ...]:
        """What makes an endless view due again where it has changed."""
        return self.accepted, self.rejected.total(), self.gaps

    def accounting(self, tally: Tally, *, late: int, duplicates: int) -> Accounting:
        """Return what a message says of a window that counts ``tally``."""
        return Accounting(
            rows=tally.total,
            rows_thinned=tally.rows_thinned,
            fractions=tally.fractions,
            rows_accepted=self.accepted,
            rows_rejected=dict(sorted(self.rejected.items())),
            rows_late=late,
            offsets={
                f"{topic}/{partition}": (ledger.first or 0, ledger.upto)
                for (topic, partition), ledger in sorted(self._sources.items())
            },
            duplicates=duplicates,
            gaps=self.gaps,
        )
