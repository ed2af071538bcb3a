"""The results as they come: ``for message in subscribe(...)``, or ``async for``.

Light to import: the Kafka client and the messages' models are loaded by the call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

if TYPE_CHECKING:
    from attributary.schemas.connection import Connection
    from attributary.schemas.topics import Topics
    from attributary.schemas.unique_information import UniqueInformationRun
    from attributary.service.subscription import Result, Subscription

Kind = Literal["attributions", "drift"]
RunKind = Literal["unique-information"]


@overload
def subscribe(
    bootstrap: str | Connection = ...,
    *,
    model: str | None = ...,
    output: str | None = ...,
    kinds: Sequence[Kind] = ...,
    topics: Topics | None = ...,
    from_beginning: bool = ...,
    newest: int = ...,
    follow: bool = ...,
) -> Subscription[Result]: ...
@overload
def subscribe(
    bootstrap: str | Connection = ...,
    *,
    model: str | None = ...,
    output: str | None = ...,
    kinds: Sequence[RunKind],
    topics: Topics | None = ...,
    from_beginning: bool = ...,
    newest: int = ...,
    follow: bool = ...,
) -> Subscription[UniqueInformationRun]: ...
def subscribe(
    bootstrap: str | Connection = "localhost:9092",
    *,
    model: str | None = None,
    output: str | None = None,
    kinds: Sequence[Kind] | Sequence[RunKind] = ("attributions",),
    topics: Topics | None = None,
    from_beginning: bool = False,
    newest: int = 0,
    follow: bool = True,
) -> Subscription[Any]:
    """Return the messages of one model (None: of all) from now on, or from the beginning.

    ::

        for message in subscribe("broker:9092", model="churn"):           # a script
        async for message in subscribe("broker:9092", model="churn"):     # asyncio

    Of two messages with one model, output and window, the one with the higher ``revision`` replaces the
    other. ``kinds``: "attributions", "drift" or both, or "unique-information" for the scheduled runs of
    mcir-m, of which ``output`` names one that a run is about. ``newest``: begin with so many of the messages
    that are there, of each kind and all models. ``follow=False`` ends with what is there at the start.
    """
    from attributary.service.subscription import open_subscription

    return open_subscription(
        bootstrap,
        model=model,
        output=output,
        kinds=kinds,
        topics=topics,
        from_beginning=from_beginning,
        newest=newest,
        follow=follow,
    )
