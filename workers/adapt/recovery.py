"""What is published already of records that are read again, from the rows topic itself."""

from __future__ import annotations

from attributary.schemas.adapters.pairing import Log
from attributary.schemas.connection import Connection
from attributary.workers.adapt.origins import Published
from attributary.workers.stream.closing import close
from attributary.workers.stream.ends import log_ends
from attributary.workers.stream.log_reader import lone_consumer, topic_partitions


async def read_published(
    connection: Connection, topic: str, since: int, starts: dict[Log, int], into: Published
) -> int:
    """Read the rows topic from ``since`` (ms) to its end; return how many messages that were.

    Rows that were made of a record are newer than it, so those of records since then lie there.
    """
    partitions = await topic_partitions(connection, [topic])
    consumer = lone_consumer(connection, wait_ms=50)
    await consumer.start()
    try:
        consumer.assign(partitions)
        ends = await log_ends(consumer, partitions)
        begins = await consumer.offsets_for_times(dict.fromkeys(partitions, max(0, since)))
        left = {}
        for partition, end in ends.items():
            begin = begins.get(partition)
            # None: there is nothing so new.
            start = end if begin is None else begin.offset
            consumer.seek(partition, start)
            if start < end:
                left[partition] = end
        count = 0
        while left:
            found = await consumer.getmany(*left, timeout_ms=100)
            for partition, records in found.items():
                for record in records:
                    if record.offset < ends[partition]:
                        into.learn(record.headers, starts)
                        count += 1
            for partition in list(left):
                if await consumer.position(partition) >= left[partition]:
                    del left[partition]
        return count
    finally:
        await close(consumer.stop())
