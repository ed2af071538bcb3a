"""What of the models is shown, by options and by keys."""

from __future__ import annotations

from dataclasses import dataclass

from attributary.service import words
from attributary.service.cells import shortened
from attributary.service.model_board import ModelBoard
from attributary.service.top.board import Board

_NAMED = 20


@dataclass
class Choice:
    """What of each model is shown; positions wrap around, so that keys may go on and on.

    ``features`` None: as many as there is room for.
    """

    window: str | None = None
    output: str | None = None
    model: int | None = None
    windows_on: int = 0
    outputs_on: int = 0
    features: int | None = None

    def window_of(self, model: ModelBoard) -> str | None:
        """Return the name of the window shown; None: the model publishes none of that kind."""
        names = [name for name in model.windows if (self.window or "") in ("", name.split(",")[0])]
        return names[self.windows_on % len(names)] if names else None

    def output_of(self, model: ModelBoard) -> str | None:
        """Return the output shown; None: the model has no such output."""
        if self.output is not None:
            return self.output if self.output in model.outputs else None
        return model.outputs[self.outputs_on % len(model.outputs)]

    def absent_from(self, model: ModelBoard) -> str | None:
        """Return why nothing of the model can be shown: it has no such output, or no such windows."""
        if self.output_of(model) is None:
            return f"no output {_quoted(self.output)}: there are {listed(model.outputs)}"
        if self.window_of(model) is None:
            kinds = sorted({name.split(",")[0] for name in model.windows})
            return f"no {self.window} windows: there are {', '.join(kinds)}"
        return None

    def absent(self, board: Board) -> str | None:
        """Return why nothing of what was asked for can be shown, with what there is; None: something can."""
        if board.model is not None and board.model not in board.models:
            return absent_model(board, board.model)
        reasons = [(name, self.absent_from(model)) for name, model in sorted(board.models.items())]
        if not reasons or any(reason is None for _, reason in reasons):
            return None
        return "; ".join(f"{shortened(name, 60)} has {reason}" for name, reason in reasons[:_NAMED])


def absent_model(board: Board, model: str) -> str:
    """Return why nothing of that model is there, and which models there are."""
    name = _quoted(model)
    if model in board.known:
        return f"the model {name} is known and has no results yet"
    others = board.known
    return f"no model {name}: there {'are ' + listed(others) if others else 'is none'}"


def listed(names: list[str]) -> str:
    """Return the first of some names."""
    return words.listed([shortened(name, 60) for name in names], _NAMED)


def _quoted(name: str | None) -> str:
    return repr(shortened(name or "", 60))
