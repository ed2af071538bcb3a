"""Names as values of a metric's label: producers can send endless ones, and a series is kept for each."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)

OTHERS = "(other)"


class LabelLimit:
    """The first ``most`` names are told apart; what comes after them shares one value."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: set[str] = set()
        self._told = False

    def of(self, name: str) -> str:
        """Return the label's value for a name."""
        if not name or name in self._names:
            return name
        if len(self._names) < self._most:
            self._names.add(name)
            return name
        if not self._told:
            self._told = True
            _log.warning(
                "metrics tell %d models apart; %r and all that are new count as %r",
                self._most, name, OTHERS,
            )  # fmt: skip
        return OTHERS
