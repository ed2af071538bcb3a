"""The results as they come: ``for message in subscribe(...)``, or ``async for``."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Literal

from aiokafka import ConsumerRecord

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.connection import Connection
from attributary.schemas.errors import AttributaryError, ConfigurationError, RejectedError
from attributary.schemas.topics import Topics
from attributary.schemas.unique_information import is_run
from attributary.service.address import connection_of
from attributary.service.own_loop import OwnLoop
from attributary.service.reader import Reader

logger = logging.getLogger("attributary.subscription")

Kind = Literal["attributions", "drift"]
Result = WindowAttribution | WindowDrift

_DECODERS: dict[str, Callable[[bytes | None], Result]] = {
    "attributions": WindowAttribution.from_bytes,
    "drift": WindowDrift.from_bytes,
}


def subscribe(
    bootstrap: str | Connection = "localhost:9092",
    *,
    model: str | None = None,
    output: str | None = None,
    kinds: Sequence[Kind] = ("attributions",),
    topics: Topics | None = None,
    from_beginning: bool = False,
    newest: int = 0,
    follow: bool = True,
) -> Subscription:
    """Return the messages of one model (None: of all) from now on, or from the beginning.

    ::

        for message in subscribe("broker:9092", model="churn"):           # a script
        async for message in subscribe("broker:9092", model="churn"):     # asyncio

    Of two messages with one model, output and window, the one with the higher ``revision`` replaces the
    other. ``kinds``: "attributions", "drift" or both. ``newest``: begin with so many of the messages that are
    there, of each kind and all models. ``follow=False`` ends with what is there at the start.
    """
    unknown = sorted(set(kinds) - set(_DECODERS))
    if unknown or not kinds:
        raise ConfigurationError(f"kinds are 'attributions' and 'drift', in a tuple; got {kinds!r}")
    named = (topics or Topics()).model_dump()
    decoders = {named[kind]: _DECODERS[kind] for kind in kinds}
    reader = Reader(
        connection_of(bootstrap),
        tuple(decoders),
        from_beginning=from_beginning,
        newest=newest,
        follow=follow,
    )
    return Subscription(reader, decoders, model=model, output=output)


class Subscription(AsyncIterator[Result], Iterator[Result]):
    """Messages of one subscription, for ``for`` or for ``async for``, not for both.

    It connects with the first message asked for, or on entering ``with`` or ``async with``, which also
    close it: what is published after that is delivered. ``skipped`` counts messages that could not be read.
    """

    def __init__(
        self,
        reader: Reader,
        decoders: dict[str, Callable[[bytes | None], Result]],
        *,
        model: str | None,
        output: str | None,
    ) -> None:
        self.skipped = 0
        self._reader = reader
        self._decoders = decoders
        self._model = model
        self._output = output
        self._messages: deque[Result] = deque()
        self._started = False
        self._loop = OwnLoop("`async for` and `async with`")
        self._closed = False

    async def __aenter__(self) -> Subscription:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> Result:
        try:
            while not self._messages:
                await self._start()
                records = await self._reader.read()
                if records is None:
                    raise StopAsyncIteration
                self._messages.extend(filter(None, map(self._decode, records)))
            return self._messages.popleft()
        except (AttributaryError, StopAsyncIteration):
            await self.aclose()
            raise

    async def aclose(self) -> None:
        """Disconnect."""
        self._closed = True
        await self._reader.stop()

    def __enter__(self) -> Subscription:
        self._loop.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> Result:
        try:
            return self._loop.run(self.__anext__())
        except StopAsyncIteration:
            self.close()
            raise StopIteration from None
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect."""
        self._closed = True
        self._loop.close(self.aclose)

    def __del__(self) -> None:
        # `for message in subscribe(...): break` leaves nobody to close it.
        with contextlib.suppress(Exception):
            self.close()

    async def _start(self) -> None:
        if self._closed:
            raise ConfigurationError("the subscription is closed: subscribe again")
        if not self._started:
            await self._reader.start()
            self._started = True

    def _decode(self, record: ConsumerRecord) -> Result | None:
        """Return the message where it is readable and asked for; scheduled runs are not."""
        if is_run(record.headers):
            return None
        try:
            message = self._decoders[record.topic](record.value)
        except RejectedError as error:
            self.skipped += 1
            if self.skipped & (self.skipped - 1) == 0:  # the 1st, 2nd, 4th, 8th...
                logger.warning(
                    "skipped %s[%d]@%d: %s (%d so far)",
                    record.topic, record.partition, record.offset, error, self.skipped,
                )  # fmt: skip
            return None
        wanted = self._model in (None, message.model) and self._output in (None, message.output)
        return message if wanted else None
