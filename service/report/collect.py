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
from attributary.service.subscribe import subscribe


@dataclass(frozen=True)
class Chapter:
    """One output: its window, and the drift of this window against each reference there is."""

    attribution: WindowAttribution
    drifts: tuple[WindowDrift, ...]


async def collect(connection: Connection, topics: Topics, model: str) -> ModelBoard:
    """Read the results topics up to now; BrokerError where they cannot be read."""
    board = ModelBoard(model)
    async with subscribe(
        connection,
        model=model,
        kinds=("attributions", "drift"),
        topics=topics,
        from_beginning=True,
        follow=False,
    ) as messages:
        async for message in messages:
            board.add(message)
    return board


def chapters(
    board: ModelBoard, *, window: str | None = None, outputs: Sequence[str] = ()
) -> list[Chapter]:
    """Return the chapters, in the order of ``outputs`` (empty: all).

    ConfigurationError where the model, one of its outputs, or such a window has no results.
    """
    if not board.outputs:
        raise ConfigurationError(
            f"no results of a model {board.name!r} in the topics: see which there are with "
            "`attributary top --once`, or register it and publish rows"
        )
    if unknown := [name for name in outputs if name not in board.outputs]:
        raise ConfigurationError(
            f"no output {unknown[0]!r} of {board.name}: there are {', '.join(board.outputs[:20])}"
        )
    found = [_chapter(board, output, window) for output in outputs or board.outputs]
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
    return Chapter(message, tuple(drift for drift in drifts if drift is not None))
