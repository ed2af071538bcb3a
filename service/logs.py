"""Logging of the processes: lines on standard error, this project's at the level that is set."""

from __future__ import annotations

import logging


def configure_logging(level: str) -> None:
    """Log this project at ``level``, and libraries from warnings up (all of it for debug)."""
    logging.basicConfig(
        level=logging.DEBUG if level == "debug" else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("attributary").setLevel(level.upper())
