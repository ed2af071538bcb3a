"""What the numbers allow to be said, in the same words for every figure, sentence and table of the page."""

from __future__ import annotations

from attributary.schemas.attribution import ColumnDrift, Window
from attributary.service.cells import PSI_NOTICEABLE, psi_level
from attributary.service.words import describe_window


def drift_words(column: ColumnDrift) -> str:
    """Return "large" or "noticeable" for an index beyond chance, "within chance" where that explains it."""
    level = psi_level(column)
    if level:
        return ("noticeable", "large")[level - 1]
    return "within chance" if column.psi is not None and column.psi >= PSI_NOTICEABLE else ""


def window_words(window: Window) -> str:
    """Return a window in words, and in which time its end is told."""
    bounded = window.kind in ("tumbling", "hopping")
    return describe_window(window) + (" UTC" if bounded else "")
