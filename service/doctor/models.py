"""Does every model have its grid, and do sketches live as long as its windows are wide?"""

from __future__ import annotations

from collections.abc import Mapping

from attributary.schemas.card import ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.accounting import Accounting
from attributary.service.doctor.finding import Finding, ok, warn
from attributary.service.printable import printable
from attributary.service.words import how_many
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.control import ControlReader

_MANY_EPOCHS = 50
_HOUR_MS = 3_600_000


async def read_catalogue(connection: Connection, topics: Topics) -> ControlCatalogue:
    """Read cards and grids up to now."""
    reader = ControlReader(connection, topics)
    try:
        await reader.on_start()
        return reader.catalogue
    finally:
        await reader.on_stop()


def check_models(
    catalogue: ControlCatalogue, accounting: Accounting, sketches: Mapping[str, str]
) -> list[Finding]:
    """Judge every model that has a card, a grid or rows; ``sketches``: settings of that topic."""
    counted = {name for name in accounting.models if name}
    names = sorted(counted | catalogue.models)
    found: list[Finding] = []
    for name in names:
        card, rows = catalogue.card(name), accounting.models.get(name)
        found += _grid(name, catalogue, waiting=0 if rows is None else rows.waiting)
        if card is not None:
            found += _windows(card, sketches.get("retention.ms"))
    if not names:
        return [ok("grids", "no models yet")]
    if not found:
        quiet = [printable(name, 40) for name in names if name not in counted]
        more = f"; no rows yet of {', '.join(quiet[:5])}" if quiet else ""
        of = "the one model" if len(names) == 1 else f"all {len(names):,} models"
        found.append(ok("grids", f"known for {of}{more}"))
    return found


def _grid(name: str, catalogue: ControlCatalogue, *, waiting: int) -> list[Finding]:
    shown, epochs = printable(name, 60), catalogue.next_epoch(name)
    if waiting and catalogue.epoch(name) is None:
        return [
            warn(
                "grids",
                f"{shown}: {how_many(waiting, 'row', 'waits', 'wait')} for a grid",
                "it is made from the first 1,024 rows, or after 3 s; where they wait for longer, see the "
                "ingest workers' logs",
            )
        ]
    if epochs >= _MANY_EPOCHS:
        return [
            warn(
                "grids",
                f"{shown} is at epoch {epochs - 1}: its rows leave the grid again and again",
                "give the card a baseline that covers its range, or look for trends and constants in it",
            )
        ]
    return []


def _windows(card: ModelCard, retention: str | None) -> list[Finding]:
    widest = max((getattr(w, "seconds", 0.0) for w in card.windows), default=0.0)
    widest_ms = round((widest + card.allowed_lateness_seconds) * 1000)
    if retention is None or retention == "-1" or int(retention) >= widest_ms:
        return []
    return [
        warn(
            "grids",
            f"{printable(card.model, 60)}: its widest window and lateness take "
            f"{widest_ms / _HOUR_MS:,.1f} h, sketches are kept for {int(retention) / _HOUR_MS:,.1f} h",
            "where event time passes like the clock, raise retention.ms of the sketches topic "
            "(layout.sketches_retention_hours), or narrow the window",
        )
    ]
