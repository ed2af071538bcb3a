"""Model cards: in a file, and in their topic, where the newest of a model holds."""

from __future__ import annotations

from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from attributary.schemas.card import ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError, ConfigurationError, RejectedError
from attributary.schemas.topics import Topics
from attributary.service.reader import Reader
from attributary.service.topics import MAX_MESSAGE_BYTES, check_topics

_REQUEST_MS = 10_000


def read_card(path: Path) -> ModelCard:
    """Return the card in a file; ConfigurationError names the file and what is wrong with it."""
    try:
        return ModelCard.from_bytes(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except RejectedError as error:
        raise ConfigurationError(f"{path}: {error}") from None


async def register_card(connection: Connection, topics: Topics, card: ModelCard) -> str:
    """Send ``card``; return what that did: ``registered NAME``, or ``replaced the card of NAME``."""
    await check_topics(connection, topics, roles=["models"])
    earlier = await find_card(connection, topics, card.model)
    await send_card(connection, topics, card)
    return f"{'registered' if earlier is None else 'replaced the card of'} {card.model}"


async def find_card(connection: Connection, topics: Topics, model: str) -> ModelCard | None:
    """Return the newest readable card of ``model``; None where there is none, or it was removed."""
    reader = Reader(connection, [topics.models], from_beginning=True, follow=False)
    await reader.start()
    found = None
    try:
        while (records := await reader.read()) is not None:
            for record in records:
                if record.key != model.encode():
                    continue
                try:
                    found = None if record.value is None else ModelCard.from_bytes(record.value)
                except RejectedError:  # somebody else's bytes do not unmake a card
                    continue
    finally:
        await reader.stop()
    return found


async def send_card(connection: Connection, topics: Topics, card: ModelCard) -> None:
    """Send ``card``; it replaces the model's earlier one. BrokerError where it is not acknowledged."""
    producer = AIOKafkaProducer(
        **connection.client_arguments(),
        acks="all",
        request_timeout_ms=_REQUEST_MS,
        max_request_size=MAX_MESSAGE_BYTES,  # the baseline of a wide model takes a megabyte
    )
    try:
        await producer.start()
        await producer.send_and_wait(topics.models, key=card.model.encode(), value=card.to_bytes())
    except KafkaError as error:
        raise BrokerError(f"the card was not taken by {connection.bootstrap}: {error}") from None
    finally:
        await producer.stop()
