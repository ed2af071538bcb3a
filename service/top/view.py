"""One frame: what is wrong and what flows, and for each model its leading features with what moves them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.panel import Panel

from attributary.service.cells import shortened
from attributary.service.model_board import ModelBoard
from attributary.service.top.board import Board
from attributary.service.top.choice import Choice, absent_model, listed
from attributary.service.top.lines import Part, flow, part, sentence
from attributary.service.top.panel import WIDE, ModelPanel
from attributary.service.words import about, quantity

# How many lines a text may take where all has room with them; else two, where the frame has so many.
_TEXT_LINES = (4, 3)
_ROOMY = 20
_PLAIN_FEATURES = 12
_NAME = 20
_KEYS = ("q quit", "w window", "o output", "m one model", "a all models")


def render(
    board: Board, choice: Choice, now: int, *, width: int, height: int | None, keys: bool
) -> RenderableType:
    """Return the frame at ``now`` (milliseconds), ``width`` cells wide and at most ``height`` lines high,
    where there is one."""
    models = [board.models[name] for name in sorted(board.models)]
    if choice.model is not None and models:
        models = [models[choice.model % len(models)]]
    if height is None:
        if choice.features is None:
            choice = replace(choice, features=_PLAIN_FEATURES)
        frame = _Frame(board, models, choice, now, width=width, lines=None, keys=keys)
        panels = [panel.drawn(panel.most) for panel in frame.panels]
        return Group(*frame.above, *panels, *frame.below)
    for lines in (*_TEXT_LINES, 2 if height >= _ROOMY else 1):
        frame = _Frame(board, models, choice, now, width=width, lines=lines, keys=keys)
        room = height - len(frame.above) - len(frame.below)
        if sum(panel.most for panel in frame.panels) <= room:
            break
    shown = _fitting(frame.panels, room)
    hidden = flow(_hidden([model.name for model in models[len(shown) :]]), width, 1)
    return Group(*frame.above, *shown, *hidden, *frame.below)


class _Frame:
    """The parts of a frame: lines above, panels, and lines below; ``lines``: the most that a text takes."""

    def __init__(
        self,
        board: Board,
        models: Sequence[ModelBoard],
        choice: Choice,
        now: int,
        *,
        width: int,
        lines: int | None,
        keys: bool,
    ) -> None:
        self.panels = [ModelPanel(each, choice, now, width=width, lines=lines) for each in models]
        self.above = flow(_head(board, now, zeros=width >= WIDE), width, lines)
        if not models:
            self.above += sentence(_waiting(board), width, "dim")
        self.below = flow(_quiet(board), width, lines)
        if keys:
            told = [part(place, key, "dim") for place, key in enumerate(_KEYS)]
            self.below += flow(told, width, 1)


def _fitting(panels: Sequence[ModelPanel], room: int) -> list[Panel]:
    """Return as many panels as fit with a few features each, the first one in any case; what is left of the
    lines goes round."""
    count = min(1, len(panels))
    while count < len(panels):
        least = sum(panel.least for panel in panels[: count + 1])
        if least + (count + 1 < len(panels)) > room:
            break
        count += 1
    lines = [panel.least for panel in panels[:count]]
    left = room - sum(lines) - (count < len(panels))
    while left > 0 and any(n < panel.most for n, panel in zip(lines, panels, strict=False)):
        for place, panel in enumerate(panels[:count]):
            if left > 0 and lines[place] < panel.most:
                lines[place] += 1
                left -= 1
    if left < 0:
        lines[0] += left
    return [panel.drawn(n) for panel, n in zip(panels, lines, strict=False)]


def _head(board: Board, now: int, *, zeros: bool) -> list[Part]:
    """Return what is wrong, then what flows; with ``zeros`` also what could be wrong and is not."""
    count, rate = len(board.models), sum(model.rate(now) for model in board.models.values())
    dead, books = board.dead_letters, board.accounting
    parts = [part(0, alarm, "bold red") for alarm in _alarms(board, now)]
    if dead:
        parts.append(part(0, quantity(dead, "dead letter"), "red"))
    if board.skipped:
        parts.append(part(0, f"{quantity(board.skipped, 'result')} unreadable", "red"))
    if books is not None and books.waiting:
        told = "row waits" if books.waiting == 1 else "rows wait"
        parts.append(part(1, f"{books.waiting:,} {told} for a grid", "yellow"))
    parts.append(part(4, shortened(board.broker, 40), "bold"))
    lag = "unknown" if board.lag is None else quantity(board.lag, "message")
    parts.append(part(0, f"lag {lag}"))
    if board.unmerged:
        parts.append(part(2, f"{quantity(board.unmerged, 'row')} counted, not in results yet"))
    if not board.caught_up:
        parts.append(part(2, "reading the newest results", "dim"))
    elif board.older is not None:
        parts.append(part(2, f"{board.older:.0%} of the older results read", "dim"))
    parts += [part(3, quantity(count, "model")), part(2, f"{rate:,.0f} rows/s")]
    if zeros and not dead:
        parts.append(part(6, "0 dead letters"))
    if zeros and not board.gaps:
        parts.append(part(5, "0 offsets lost"))
    return parts


def _alarms(board: Board, now: int) -> list[str]:
    found = []
    if board.trouble is not None:
        told = f"{shortened(board.trouble, 100)}," if board.trouble else "broker not answering"
        found.append(f"{told} for {about((now - (board.answered or now)) / 1000)}")
    books = board.accounting
    for topic, partition in [] if books is None else books.lost_ends:
        found.append(f"{shortened(topic, 40)}/{partition} ends before what was counted of it")
    if board.gaps:
        found.append(f"{quantity(board.gaps, 'offset')} lost")
    if books is not None and books.overlaps:
        found.append(f"{quantity(books.overlaps, 'offset')} counted twice")
    return found


def _waiting(board: Board) -> str:
    """Return what is waited for where nothing can be shown."""
    if not board.caught_up:
        return ""
    if board.model is None or not board.known:
        return "waiting for the first attributions"
    return f"waiting: {absent_model(board, board.model)}"


def _quiet(board: Board) -> list[Part]:
    """Return the models that have no result among those read."""
    quiet = board.quiet
    if board.model is not None or not (quiet and board.caught_up) or board.older is not None:
        return []
    told = "no result yet" if board.complete else "no recent result (--model NAME reads all)"
    return [part(0, f"{told}: {listed(quiet)}", "dim")]


def _hidden(names: Sequence[str]) -> list[Part]:
    """Return the models that there is no room for."""
    if not names:
        return []
    parts = [part(place, shortened(name, _NAME), "dim") for place, name in enumerate(names, 1)]
    return [part(0, quantity(len(names), "more model"), "dim"), *parts]
