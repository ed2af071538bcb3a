"""Pure ASGI middleware: publishes the predictions that a web service answers with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any

import msgspec

from attributary.schemas.errors import Reason, RejectedError
from attributary.service.observed import observe
from attributary.service.publisher import Publisher
from attributary.service.watch import publish_seen

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
Part = str | Callable[[Any], Any] | None

MAX_BODY_BYTES = 2**20


class PredictionMiddleware:
    """Publishes what a request asked about and what its answer said, after the answer has gone.

    ::

        app.add_middleware(PredictionMiddleware, publisher=publisher, paths=["/predict"],
                           features="features", outputs="score")

    ``paths``: exact paths of POST requests with JSON in both directions, answered with a 2xx. ``features``
    and ``outputs``: a member of the body (``"input.rows"`` goes down), what makes them of the decoded body,
    or None: the body itself. Many rows are a list of objects or of lists, or an object of lists.

    ``id_header`` names a row, of requests with one. Bodies beyond ``max_body_bytes`` pass, and are counted as
    invalid. When the service shuts down, the publisher is flushed for ``flush_seconds`` at most.
    """

    def __init__(
        self,
        app: App,
        *,
        publisher: Publisher,
        paths: Collection[str],
        features: Part = None,
        outputs: Part = None,
        id_header: str = "x-request-id",
        max_body_bytes: int = MAX_BODY_BYTES,
        flush_seconds: float = 5.0,
    ) -> None:
        self._app = app
        self._publisher = publisher
        self._paths = frozenset([paths] if isinstance(paths, str) else paths)
        self._features = features
        self._outputs = outputs
        self._id_header = id_header.lower().encode()
        self._max_body_bytes = max_body_bytes
        self._flush_seconds = flush_seconds

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one connection; what the app raises is raised."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, self._flushing(send))
        elif scope["type"] != "http" or scope["method"] != "POST" or not self._is_meant(scope):
            await self._app(scope, receive, send)
        else:
            await self._watch(scope, receive, send)

    def _is_meant(self, scope: Mapping[str, Any]) -> bool:
        path: str = scope["path"]
        mounted = scope.get("root_path", "")
        return path in self._paths or path.removeprefix(mounted) in self._paths

    def _flushing(self, send: Send) -> Send:
        async def flushed(message: Message) -> None:
            if message["type"].startswith("lifespan.shutdown."):
                await self._publisher.aflush(self._flush_seconds)
            await send(message)

        return flushed

    async def _watch(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        request, response = _Body(self._max_body_bytes), _Body(self._max_body_bytes)
        status = 0
        encoded = False

        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                request.add(message)
            return message

        async def sending(message: Message) -> None:
            nonlocal status, encoded
            if message["type"] == "http.response.start":
                status = message["status"]
                encoded = _header(message, b"content-encoding") not in (None, b"identity")
            elif message["type"] == "http.response.body":
                response.add(message)
            await send(message)
            if response.whole and 200 <= status < 300:
                response.whole = False
                compressed = encoded or _header(scope, b"content-encoding") is not None
                self._publish(scope, request, response, compressed)

        await self._app(scope, receiving, sending)

    def _publish(
        self, scope: Mapping[str, Any], request: _Body, response: _Body, compressed: bool
    ) -> None:
        """Publish the rows of one exchange; what cannot be read is counted, nothing is raised."""
        try:
            if compressed:
                raise RejectedError(
                    Reason.NOT_DECODABLE,
                    "the body is compressed: put this middleware inside the one that compresses",
                )
            seen = observe(_part(request.decoded("request"), self._features))
            result = _part(response.decoded("response"), self._outputs)
            name = _header(scope, self._id_header)
            ids: Any = None
            if name is not None and seen.rows == 1:
                ids = name.decode("latin-1")
                ids = [ids] if seen.many else ids
        except Exception as error:
            self._publisher.refuse(error)
            return
        publish_seen(self._publisher, seen, result, ids)


class _Body:
    """A body as its messages pass, up to so many bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0
        self.whole = False

    def add(self, message: Message) -> None:
        part = message.get("body", b"")
        self._size += len(part)
        if self._size <= self._most:
            self._parts.append(bytes(part))
        else:
            self._parts.clear()
        self.whole = not message.get("more_body", False)

    def decoded(self, what: str) -> Any:
        if self._size > self._most:
            raise RejectedError(
                Reason.TOO_LARGE, f"the {what} has more than {self._most:,} bytes (max_body_bytes)"
            )
        try:
            return msgspec.json.decode(b"".join(self._parts))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RejectedError(Reason.NOT_DECODABLE, f"the {what} is not JSON: {error}") from None


def _part(body: Any, part: Part) -> Any:
    if callable(part):
        return part(body)
    for name in [] if part is None else part.split("."):
        if not isinstance(body, dict) or name not in body:
            raise RejectedError(Reason.WRONG_TYPE, f"the body has no member {part!r}")
        body = body[name]
    return body


def _header(holder: Mapping[str, Any], name: bytes) -> bytes | None:
    found = next((value for key, value in holder.get("headers", ()) if key.lower() == name), None)
    return None if found is None else bytes(found)
