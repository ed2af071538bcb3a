"""Explanations on request: ``Explainer(...).request(...)``, or ``await explainer.arequest(...)``.

Light to import: the Kafka client and the messages' models are loaded by the first explainer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from attributary.schemas.errors import AttributaryError
from attributary.service.own_loop import OwnLoop

if TYPE_CHECKING:
    from attributary.schemas.connection import Connection
    from attributary.schemas.explanation import Explanation, Progress
    from attributary.schemas.request import MethodName
    from attributary.schemas.topics import Topics
    from attributary.service.exchange import Rows


class NoAnswerError(AttributaryError):
    """No worker has answered by the deadline."""


class Explainer:
    """Asks the request workers of one broker to explain a model's outputs.

    ::

        with Explainer("broker:9092", model="churn") as explainer:           # a script
            answer = explainer.request({"age": 41, "plan": "pro"})
        async with Explainer("broker:9092", model="churn") as explainer:     # asyncio
            answer = await explainer.arequest({"age": 41, "plan": "pro"})

    It connects on entering, or with the first request. With asyncio many requests may be under way at one
    time; the plain form is for one thread.
    """

    def __init__(
        self,
        bootstrap: str | Connection = "localhost:9092",
        *,
        model: str,
        topics: Topics | None = None,
    ) -> None:
        """Check the address (ConfigurationError)."""
        from attributary.service.exchange import Exchange

        self._exchange = Exchange(bootstrap, model, topics)
        self._loop = OwnLoop("`async with` and `await arequest`")

    async def __aenter__(self) -> Explainer:
        await self._exchange.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Explainer:
        self._loop.run(self._exchange.start())
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def request(
        self,
        instances: Rows,
        *,
        method: MethodName = "t-explainer",
        output: str | int | None = None,
        background: Rows | None = None,
        parameters: Mapping[str, Any] | None = None,
        seed: int = 0,
        timeout: float = 60.0,
        priority: Literal["normal", "high"] = "normal",
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Explanation:
        """Return the final answer, whatever its outcome: "result", "error", "expired" or "cancelled".

        ``instances``: one row or several as the model's rows name their features, or a window of its stream.
        ``background``: what contributions are against; None: samples of the stream. ``output``: a name or
        position; None: all. ``timeout``: seconds until the answer is of no use any more.

        ConfigurationError: the request cannot be sent as it is. BrokerError: the broker refuses it.
        NoAnswerError: no worker has answered in time. An interrupt (Ctrl-C) takes the request back.
        """
        return self._loop.run(
            self.arequest(
                instances,
                method=method,
                output=output,
                background=background,
                parameters=parameters,
                seed=seed,
                timeout=timeout,
                priority=priority,
                on_progress=on_progress,
            )
        )

    async def arequest(
        self,
        instances: Rows,
        *,
        method: MethodName = "t-explainer",
        output: str | int | None = None,
        background: Rows | None = None,
        parameters: Mapping[str, Any] | None = None,
        seed: int = 0,
        timeout: float = 60.0,
        priority: Literal["normal", "high"] = "normal",
        on_progress: Callable[[Progress], None] | None = None,
    ) -> Explanation:
        """As ``request``, for asyncio. Cancelling the task takes the request back."""
        return await self._exchange.ask(
            instances,
            method=method,
            output=output,
            background=background,
            parameters=parameters,
            seed=seed,
            timeout=timeout,
            priority=priority,
            on_progress=on_progress,
        )

    async def aclose(self) -> None:
        """Disconnect."""
        await self._exchange.close()

    def close(self) -> None:
        """Disconnect."""
        self._loop.close(self.aclose)
