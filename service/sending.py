"""The publisher's background thread as its callers see it: light, for all that is heavy is loaded in it."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

from attributary.service.outbox import Outbox

if TYPE_CHECKING:
    from attributary.schemas.connection import Connection
    from attributary.service.sender import Sender

logger = logging.getLogger("attributary.publisher")

_RETRY_SECONDS = 1.0

loading = threading.RLock()
"""Held while the thread loads the Kafka client. Who forks must hold it: a child that is forked in the middle
of an import can never finish that import, nor begin it anew."""


class Sending:
    """A thread that sends what the outbox holds until it is stopped."""

    def __init__(
        self,
        outbox: Outbox,
        broker: str | Connection,
        topic: str,
        *,
        model: str | None,
        linger_seconds: float,
        keyed: bool,
    ) -> None:
        """Start it; RuntimeError where there are no more threads."""
        self._outbox = outbox
        self._broker = broker
        self._topic = topic
        self._model = model
        self._linger = linger_seconds
        self._keyed = keyed
        self._lock = threading.Lock()
        self._sender: Sender | None = None
        self._hurried = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="attributary-publisher", daemon=True)
        self._thread.start()

    def hurry(self) -> None:
        """Send without waiting for more rows to share a message with."""
        with self._lock:
            self._hurried.set()
            if self._sender is not None:
                self._sender.hurry()

    def stop(self, timeout: float) -> None:
        """End the thread; what is still in the outbox stays there."""
        with self._lock:
            self._stopping.set()
            self._hurried.set()
            if self._sender is not None:
                self._sender.stop()
        self._thread.join(timeout)

    def _run(self) -> None:
        # Rows wait so long for others anyway; and who has published the first one is not held up by what
        # is loaded, with Python's lock, for that.
        self._hurried.wait(self._linger)
        said = False
        while not self._stopping.is_set():
            try:
                sender = self._load()
            except Exception as error:  # a broken installation, or no more descriptors
                if not said:
                    said = True
                    logger.error("cannot send rows, which wait meanwhile: %r", error)
                self._stopping.wait(_RETRY_SECONDS)
            else:
                sender.run()
                return

    def _load(self) -> Sender:
        with loading:
            from attributary.schemas.connection import Connection
            from attributary.service.sender import Sender

            broker = self._broker
            sender = Sender(
                self._outbox,
                Connection(bootstrap=broker) if isinstance(broker, str) else broker,
                self._topic,
                model=self._model,
                linger_seconds=self._linger,
                keyed=self._keyed,
            )
            with self._lock:  # what was said meanwhile
                self._sender = sender
                if self._hurried.is_set():
                    sender.hurry()
                if self._stopping.is_set():
                    sender.stop()
            return sender
