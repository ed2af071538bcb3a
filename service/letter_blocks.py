"""Which rejected messages can be published again without counting a row twice.

A worker that starts, or takes a partition over, reads the open blocks again, by the settings and cards of
then: it may accept by itself what was rejected before. So letters of an open block wait until it is
closed, and those of a block whose final manifest rejects fewer rows than they do are not trusted.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import Origin
from attributary.schemas.errors import BrokerError
from attributary.schemas.manifest import Manifest
from attributary.schemas.topics import Topics
from attributary.service.accounting import AccountingReader
from attributary.service.letter_index import Letter


@dataclass(frozen=True)
class Judgement:
    """Letters by whether they can be published again: ``sure``; in blocks that are ``open``; in blocks
    that were counted again since (``recounted``)."""

    sure: list[Letter]
    open: list[Letter]
    recounted: list[Letter]


async def judge(
    connection: Connection, topics: Topics, every: Iterable[Letter], letters: Collection[Letter]
) -> Judgement:
    """Judge ``letters``; ``every`` is all that is known. BrokerError: the broker does not answer."""
    found = Judgement([], [], [])
    ours = {letter.origin for letter in letters if letter.origin.topic == topics.rows}
    if not ours:
        return Judgement(list(letters), [], [])
    committed = await _committed(connection, topics, {origin.partition for origin in ours})
    async with AccountingReader(connection, topics, partition=None) as reader:
        await reader.refresh()
        doubtful = recounted(every, reader.manifests())
    for letter in letters:
        origin = letter.origin
        if origin in ours and origin.offset >= committed.get(origin.partition, 0):
            found.open.append(letter)
        elif origin in doubtful:
            found.recounted.append(letter)
        else:
            found.sure.append(letter)
    return found


def recounted(letters: Iterable[Letter], manifests: Iterable[Manifest]) -> set[Origin]:
    """Return the letters of the blocks whose manifest rejects fewer rows than their letters do."""
    blocks: dict[tuple[str, int], dict[int, Manifest]] = {}
    for manifest in manifests:
        blocks.setdefault((manifest.topic, manifest.partition), {})[manifest.block] = manifest
    starts = {source: sorted(some) for source, some in blocks.items()}
    rejected: Counter[tuple[str, int, int]] = Counter()
    members: dict[tuple[str, int, int], list[Origin]] = {}
    for letter in letters:
        topic, partition, offset = letter.origin
        firsts = starts.get((topic, partition), [])
        place = bisect_right(firsts, offset) - 1
        if place < 0 or offset >= blocks[topic, partition][firsts[place]].upto:
            continue  # its manifest is gone: nothing to compare with
        block = (topic, partition, firsts[place])
        rejected[block] += letter.count
        members.setdefault(block, []).append(letter.origin)
    return {
        origin
        for block, origins in members.items()
        if rejected[block] > _rejected(blocks[block[:2]][block[2]])
        for origin in origins
    }


def _rejected(manifest: Manifest) -> int:
    return sum(rows for model in manifest.models.values() for rows in model.rejected.values())


async def _committed(
    connection: Connection, topics: Topics, partitions: Iterable[int]
) -> dict[int, int]:
    """Return what ingest has committed: where the oldest open block of a partition begins."""
    consumer = AIOKafkaConsumer(
        **connection.client_arguments(), group_id=f"{topics.rows}-ingest", enable_auto_commit=False
    )
    try:
        await consumer.start()
        # Assigned by hand: it asks the group's coordinator, and is no member that takes a share.
        places = [TopicPartition(topics.rows, number) for number in sorted(set(partitions))]
        consumer.assign(places)
        return {
            at.partition: offset
            for at in places
            if (offset := await consumer.committed(at)) is not None
        }
    except KafkaError as error:
        raise BrokerError(
            f"what ingest has committed cannot be read from {connection.bootstrap}: {error}"
        ) from None
    finally:
        await consumer.stop()
