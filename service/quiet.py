"""Keep aiokafka's own log lines out of a serving process, for the publisher's thread alone.

While a broker is away aiokafka logs an error for every attempt, ten a second. The publisher says it once.
"""

from __future__ import annotations

import logging
import threading

_LOGGERS = (
    "aiokafka",
    "aiokafka.cluster",
    "aiokafka.conn",
    "aiokafka.producer.producer",
    "aiokafka.producer.sender",
)


class _ByThread(logging.Filter):
    """Drops what quiet threads log below CRITICAL. Filters run in the thread that logs."""

    def __init__(self) -> None:
        super().__init__()
        self.thread = threading.local()

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(self.thread, "quiet", False) or record.levelno >= logging.CRITICAL


_filter = _ByThread()


def quiet_this_thread() -> None:
    """Drop what aiokafka logs from the calling thread; other threads' records are untouched."""
    _filter.thread.quiet = True
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_filter)  # adding it again changes nothing
