"""What the demonstration says at its end: whether every row was counted once, and scored right."""

from __future__ import annotations

from rich.console import Console

from attributary.schemas.attribution import WindowAttribution
from attributary.service.demo.check import Difference, compare
from attributary.service.demo.dataset import Dataset
from attributary.service.demo.session import Outcome
from attributary.service.words import describe_window, left_out

# A run that was interrupted must be gone within seconds: more rows than this are not computed again.
_HURRIED_ROWS = 60_000


def report(dataset: Dataset, outcome: Outcome, console: Console) -> bool:
    """Print the accounting and the comparison; return whether the accounting is exact."""
    exact = _accounting(outcome, console)
    if not outcome.complete:
        console.print("the results did not catch up in time: what follows may lack rows")
    compared = False
    for messages in _windows(dataset, outcome):
        if outcome.interrupted and messages[0].accounting.rows > _HURRIED_ROWS:
            continue
        _comparison(compare(dataset.card, outcome.rows, messages), messages[0], console)
        compared = True
    if not compared:
        console.print("nothing to compare with a batch computation yet")
    return exact


def _accounting(outcome: Outcome, console: Console) -> bool:
    books = outcome.accounting
    counted = books.accepted + books.rejected
    exact = counted == outcome.published and books.settled and not outcome.unpublished
    console.print(
        f"rows published {outcome.published:,} {'=' if exact else '≠'} "
        f"accepted {books.accepted:,}{left_out(books.thinned)} + rejected {books.rejected:,}"
        f"{': exact' if exact else ''}"
    )
    for reason, rows in sorted(books.rejected_by_reason.items()):
        console.print(f"  rejected, {reason}: {rows:,}")
    problems = {
        "rows never acknowledged by the broker": outcome.unpublished,
        "rows waiting for their grid": books.waiting,
        "messages not read": books.lag,
        "offsets that no manifest covers": books.gaps,
        "offsets counted twice": books.overlaps,
    }
    for what, count in problems.items():
        if count:
            console.print(f"  {what}: {count:,}")
    return exact


def _windows(dataset: Dataset, outcome: Outcome) -> list[list[WindowAttribution]]:
    """Return the last messages of the lifetime view and of the newest final window, if complete."""
    outputs = dataset.card.outputs
    found: list[list[WindowAttribution]] = []
    for messages in (outcome.latest.lifetime, outcome.latest.final):
        newest = [messages[name] for name in outputs if name in messages]
        if len(newest) == len(outputs) and len({message.window.start for message in newest}) == 1:
            found.append(newest)
    return found


def _comparison(found: Difference, first: WindowAttribution, console: Console) -> None:
    kind = "" if first.window.kind == "lifetime" else f"{first.window.kind} window of "
    console.print(
        f"largest |streamed - batch| CIR {found.largest:.1e} over {found.scores:,} scores\n"
        f"  of {kind}{describe_window(first.window)}, {found.rows:,} rows\n"
        f"  at {found.where}",
        soft_wrap=True,
    )
    if found.rows != found.streamed_rows:
        console.print(f"  the stream had counted {found.streamed_rows:,} of them")
