"""Which windows the report is about: of each output the newest final one, and its drift."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.connection import Connection
from attributary.schemas.errors import ConfigurationError
from attributary.schemas.topics import Topics
from attributary.service.latest import REFERENCES, Latest
from attributary.service.model_board import ModelBoard
from attributary.service.printable import printable
from attributary.service.subscribe import subscribe
from attributary.service.words import listed

_NAMED = 20  # as many names in an error


@dataclass(frozen=True)
class Chapter:
    """One output: its window, and the drift of this window against each reference there is.

    ``watermark``: the farthest that any result tells of; ``lifetime_rows``: of the lifetime view, 0 without.
    """

    attribution: WindowAttribution
    drifts: tuple[WindowDrift, ...]
    watermark: int | None
    lifetime_rows: int


async def collect(connection: Connection, topics: Topics, model: str) -> ModelBoard:
    """Read the results topics up to now; BrokerError where they cannot be read.

    ConfigurationError where they tell nothing of the model: it names those that they tell of.
    """
    board = ModelBoard(model)
    others: set[str] = set()
    async with subscribe(
        connection,
        kinds=("attributions", "drift"),
        topics=topics,
        from_beginning=True,
        follow=False,
    ) as messages:
        async for message in messages:
            if message.model == model:
                board.add(message)
            else:
                others.add(message.model)
    if not board.outputs:
        raise ConfigurationError(_no_such(model, sorted(others)))
    return board


def _no_such(model: str, others: Sequence[str]) -> str:
    if not others:
        return f"no results of a model {model!r}, nor of any other: register it and publish rows"
    named = listed([printable(name, 60) for name in others], _NAMED)
    return f"no results of a model {model!r}: there are {named}"


def chapters(
    board: ModelBoard, *, window: str | None = None, outputs: Sequence[str] = ()
) -> list[Chapter]:
    """Return the chapters, one an output, in the order of ``outputs`` (empty: all).

    ConfigurationError where one of the outputs, or such a window, has no results.
    """
    if unknown := [name for name in outputs if name not in board.outputs]:
        raise ConfigurationError(
            f"no output {unknown[0]!r} of {board.name}: there are {listed(board.outputs, _NAMED)}"
        )
    found = [_chapter(board, output, window) for output in dict.fromkeys(outputs or board.outputs)]
    present = [chapter for chapter in found if chapter is not None]
    if not present:
        kinds = sorted({name.partition(",")[0] for name in board.windows})
        raise ConfigurationError(
            f"no attributions in {window or 'any'} windows of {board.name}: its windows are "
            f"{', '.join(kinds)}"
        )
    return present


def _chapter(board: ModelBoard, output: str, window: str | None) -> Chapter | None:
    shown: list[tuple[WindowAttribution, Latest]] = []
    for name in board.windows:
        if window in (None, name.partition(",")[0]):
            latest = board.latest(name)
            if (message := latest.shown(output)) is not None:
                shown.append((message, latest))
    if not shown:
        return None
    message, latest = max(shown, key=lambda pair: (pair[0].final, pair[0].window.end))
    drifts = [latest.drift(output, reference) for reference in REFERENCES]
    every = [board.latest(name) for name in board.windows]
    lifetimes = [found.lifetime[output] for found in every if output in found.lifetime]
    return Chapter(
        message,
        tuple(drift for drift in drifts if drift is not None),
        max((found.watermark for found in every if found.watermark is not None), default=None),
        max((lifetime.accounting.rows for lifetime in lifetimes), default=0),
    )
