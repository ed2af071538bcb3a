"""May this client read and write, and do the clocks agree?"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError

from attributary.schemas.errors import BrokerError
from attributary.schemas.request import Cancellation
from attributary.service.doctor.finding import Finding, fail, ok, warn
from attributary.service.log_extents import LogExtents
from attributary.service.settings import Settings

_LOG_APPEND = 1
_REQUEST_MS = 10_000
# Rows further ahead of the broker's clock than ingest allows are rejected; results look odd long before.
_SKEW_WARN_MS, _SKEW_FAIL_MS = 2_000, 60_000


async def check_reading(settings: Settings, names: Sequence[str]) -> list[Finding]:
    """Fetch from every topic: all at once, and where that is refused one by one."""
    refused: list[str] = []
    if await _refusal(settings, names) is not None:
        for name in names:
            if (reason := await _refusal(settings, [name])) is not None:
                refused.append(f"{name} ({reason})")
    if refused:
        return [
            fail(
                "permissions",
                f"cannot read {', '.join(refused)}",
                "give this client READ and DESCRIBE on these topics",
            )
        ]
    return [ok("permissions", f"may read all {len(names)} topics")]


async def _refusal(settings: Settings, names: Sequence[str]) -> str | None:
    try:
        async with LogExtents(settings.connection, names, None) as extents:
            await extents.refresh()
    except (BrokerError, KafkaError) as error:
        return str(error)
    return None


async def check_writing(settings: Settings) -> list[Finding]:
    """Cancel a request that nobody made: tells whether this client may write, and the broker's time."""
    topic = settings.topics.cancellations
    producer = AIOKafkaProducer(
        **settings.connection.client_arguments(), request_timeout_ms=_REQUEST_MS
    )
    nobody = Cancellation(id=f"doctor-{uuid.uuid4().hex}")
    try:
        await producer.start()
        # The first one learns of the topic; the second one measures.
        await producer.send_and_wait(topic, nobody.to_bytes(), key=nobody.id.encode())
        before = time.time() * 1000
        told = await producer.send_and_wait(topic, nobody.to_bytes(), key=nobody.id.encode())
        after = time.time() * 1000
    except TopicAuthorizationFailedError:
        return [fail("permissions", f"may not write {topic}", "give this client WRITE on it")]
    except KafkaError as error:
        return [fail("permissions", f"cannot write {topic}: {error}", "see what the broker says")]
    finally:
        await producer.stop()
    written = ok("permissions", f"may write {topic}")
    if told.timestamp_type != _LOG_APPEND:
        return [
            written,
            ok("clock", "not compared: the broker does not stamp records with its time"),
        ]
    return [written, clock_finding(told.timestamp, before, after)]


def clock_finding(broker: float, before: float, after: float) -> Finding:
    """Judge the broker's time, which it told between ``before`` and ``after`` (all milliseconds)."""
    skew = before - broker if broker < before else after - broker if broker > after else 0.0
    words = f"this machine is {abs(skew) / 1000:.1f} s {'ahead of' if skew > 0 else 'behind'} the broker"
    fix = "let both take their time from NTP: rows' default times and lateness go by these clocks"
    if abs(skew) >= _SKEW_FAIL_MS:
        return fail("clock", words, fix)
    if abs(skew) >= _SKEW_WARN_MS:
        return warn("clock", words, fix)
    return ok("clock", f"agrees with the broker's to {max(after - before, abs(skew)):.0f} ms")
