"""What ``subscribe`` returns: the messages of some topics, for ``for`` or ``async for``."""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from aiokafka import ConsumerRecord

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.connection import Connection
from attributary.schemas.errors import AttributaryError, ConfigurationError, RejectedError
from attributary.schemas.topics import Topics
from attributary.schemas.unique_information import UniqueInformationRun, is_run
from attributary.service.address import connection_of
from attributary.service.own_loop import OwnLoop
from attributary.service.reader import Reader

logger = logging.getLogger("attributary.subscription")

Result = WindowAttribution | WindowDrift
Message = TypeVar("Message", bound=WindowAttribution | WindowDrift | UniqueInformationRun)

#: By kind: the role of its topic, whether its records are marked as runs, and how they are read.
_KINDS: dict[str, tuple[str, bool, Callable[[bytes | None], Any]]] = {
    "attributions": ("attributions", False, WindowAttribution.from_bytes),
    "drift": ("drift", False, WindowDrift.from_bytes),
    "unique-information": ("attributions", True, UniqueInformationRun.from_bytes),
}


def open_subscription(
    bootstrap: str | Connection,
    *,
    model: str | None,
    output: str | None,
    kinds: Sequence[str],
    topics: Topics | None,
    from_beginning: bool,
    newest: int,
    follow: bool,
) -> Subscription[Any]:
    """Return the subscription that ``subscribe`` was asked for; ConfigurationError: there is none such."""
    unknown = sorted(set(kinds) - set(_KINDS))
    if unknown or not kinds:
        raise ConfigurationError(
            f"kinds are 'attributions' and 'drift', or 'unique-information', in a tuple; got {kinds!r}"
        )
    named = (topics or Topics()).model_dump()
    decoders = {}
    for role, runs, decode in (_KINDS[kind] for kind in kinds):
        decoders[(named[role], runs)] = decode
    reader = Reader(
        connection_of(bootstrap),
        tuple({topic: None for topic, _ in decoders}),
        from_beginning=from_beginning,
        newest=newest,
        follow=follow,
    )
    return Subscription(reader, decoders, model=model, output=output)


class Subscription(AsyncIterator[Message], Iterator[Message], Generic[Message]):
    """Messages of one subscription, for ``for`` or for ``async for``, not for both.

    It connects with the first message asked for, or on entering ``with`` or ``async with``, which also
    close it: what is published after that is delivered. ``skipped`` counts messages that could not be read.
    """

    def __init__(
        self,
        reader: Reader,
        decoders: dict[tuple[str, bool], Callable[[bytes | None], Message]],
        *,
        model: str | None,
        output: str | None,
    ) -> None:
        self.skipped = 0
        self._reader = reader
        self._decoders = decoders
        self._model = model
        self._output = output
        self._messages: deque[Message] = deque()
        self._started = False
        self._loop = OwnLoop("`async for` and `async with`")
        self._closed = False

    async def __aenter__(self) -> Subscription[Message]:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Subscription[Message]:
        return self

    async def __anext__(self) -> Message:
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

    def __enter__(self) -> Subscription[Message]:
        self._loop.run(self._start())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Subscription[Message]:
        return self

    def __next__(self) -> Message:
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

    def _decode(self, record: ConsumerRecord) -> Message | None:
        """Return the message where it is readable and asked for."""
        decode = self._decoders.get((record.topic, is_run(record.headers)))
        if decode is None:
            return None
        try:
            message = decode(record.value)
        except RejectedError as error:
            self.skipped += 1
            if self.skipped & (self.skipped - 1) == 0:  # the 1st, 2nd, 4th, 8th...
                logger.warning(
                    "skipped %s[%d]@%d: %s (%d so far)",
                    record.topic, record.partition, record.offset, error, self.skipped,
                )  # fmt: skip
            return None
        outputs = (
            message.result.outputs
            if isinstance(message, UniqueInformationRun)
            else [message.output]
        )
        wanted = self._model in (None, message.model) and self._output in (None, *outputs)
        return message if wanted else None
