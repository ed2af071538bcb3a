"""Closes clients in order, whatever the broker does meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from aiokafka.errors import KafkaError

_log = logging.getLogger(__name__)


async def close(closing: Coroutine[Any, Any, None]) -> None:
    """Await a client's own ``stop()``; what it could not do in order is logged.

    While the broker is away, or right after a consumer's start, a cancelled task of aiokafka's comes out
    of its stop: it looks as if the caller were cancelled, who must go on to close what else is open.
    """
    task = asyncio.ensure_future(closing)
    await asyncio.wait({task})
    if task.cancelled():
        _log.info("closed a client that was still at work")
        return
    error = task.exception()
    if isinstance(error, KafkaError):
        _log.info("closed a client without the broker: %s", error)
    elif error is not None:
        raise error
