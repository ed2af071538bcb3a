"""Requests that are taken back. Every worker reads all of them: nobody knows who has the request."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from aiokafka import ConsumerRecord

from attributary.schemas.connection import Connection
from attributary.schemas.errors import RejectedError
from attributary.schemas.request import Cancellation
from attributary.schemas.topics import Topics
from attributary.workers.stream.log_reader import LogReader

_log = logging.getLogger(__name__)

_MOST = 100_000


class CancellationReader(LogReader):
    """Follows the cancellations topic; ``on_cancel`` is told each id as it comes."""

    def __init__(self, connection: Connection, topics: Topics, **kwargs: Any) -> None:
        super().__init__(connection, [topics.cancellations], **kwargs)
        self.on_cancel: Callable[[str], None] = lambda request_id: None
        self._ids: OrderedDict[str, None] = OrderedDict()

    def cancelled(self, request_id: str) -> bool:
        """Whether the request is taken back."""
        return request_id in self._ids

    def add(self, record: ConsumerRecord) -> None:
        """Take a cancellation."""
        try:
            request_id = Cancellation.from_bytes(record.value).id
        except RejectedError as error:
            _log.warning("ignored a cancellation that cannot be read: %s", error)
            return
        self._ids[request_id] = None
        if len(self._ids) > _MOST:
            self._ids.popitem(last=False)
        self.on_cancel(request_id)
