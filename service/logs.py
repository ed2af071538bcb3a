"""Logging of the processes: lines on standard error, this project's at the level that is set."""

from __future__ import annotations

import logging


def configure_logging(level: str) -> None:
    """Log this project at ``level``, and libraries from warnings up (all of it for debug)."""
    debug = level == "debug"
    logging.basicConfig(
        level=logging.DEBUG if debug else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger("attributary").setLevel(level.upper())
    if not debug:
        for handler in logging.getLogger().handlers:
            handler.addFilter(_worth_a_line)


def _worth_a_line(record: logging.LogRecord) -> bool:
    """Drop the lines with which mode marks every start and stop of a service, below warnings."""
    return record.levelno >= logging.WARNING or not str(record.msg).startswith("[^")
