"""Publishing at a pace: the rows in order, half of the messages as Arrow batches, half as JSON rows."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator

from attributary.schemas.arrow import ARROW_CONTENT
from attributary.service.client import Publisher
from attributary.service.demo.dataset import Dataset, Rows
from attributary.service.demo.wire import as_arrow, as_json_columns

BATCH_ROWS = 250
_TICK_SECONDS = 0.05
_RATE_SECONDS = 3.0


class RowStream:
    """Publishes a data set through ``publisher``; ``rows`` have been handed over so far.

    ``live``: again and again, as if every row happened when it is sent. Rows that are due while the
    publisher's buffer is full wait: a demonstration loses none.
    """

    def __init__(
        self, dataset: Dataset, publisher: Publisher, *, rate: float, live: bool = False
    ) -> None:
        self.rows = 0
        self._live = live
        self._dataset = dataset
        self._publisher = publisher
        self._rate = rate
        self._seen: deque[tuple[float, int]] = deque()

    async def run(self, stopping: Callable[[], bool], seconds: float | None) -> None:
        """Publish until the rows end, ``seconds`` have passed or ``stopping()``."""
        # A slow stream takes smaller messages, so that its rows do not come in lumps.
        size = max(1, min(BATCH_ROWS, round(self._rate / 4)))
        started = time.monotonic()
        for number, rows in enumerate(self._batches(size)):
            due = started + (self.rows + len(rows)) / self._rate
            while True:
                now = time.monotonic()
                if stopping() or (seconds is not None and now - started >= seconds):
                    return
                if now >= due and self._publisher.pending <= 20 * BATCH_ROWS:
                    break
                await asyncio.sleep(min(_TICK_SECONDS, max(due - now, 0.005)))
            self._send(rows, arrow=number % 2 == 0)

    def rate(self) -> float:
        """Return the rows a second of the last few seconds, as the broker acknowledged them."""
        now, published = time.monotonic(), self._publisher.published
        self._seen.append((now, published))
        while now - self._seen[0][0] > _RATE_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        return (published - before) / (now - since) if now > since else 0.0

    def _batches(self, size: int) -> Iterator[Rows]:
        yield from self._dataset.batches(size)
        while self._live:
            yield from self._dataset.batches(size)

    def _send(self, rows: Rows, *, arrow: bool) -> None:
        if self._live:
            rows = rows.at(time.time_ns() // 1_000_000)
        if arrow:
            message = as_arrow(self._dataset.card, rows)
            self._publisher.publish_message(message, len(rows), ARROW_CONTENT)
        else:
            self._publisher.publish_batch(**as_json_columns(rows))
        self.rows += len(rows)
