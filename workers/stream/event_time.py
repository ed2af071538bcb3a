"""How far event time has come for a model, over all source partitions."""

from __future__ import annotations

from collections.abc import Mapping

from attributary.workers.stream.held import SourceKey
from attributary.workers.stream.ledger import SourceLedger


def watermark(
    model: str,
    sources: Mapping[SourceKey, SourceLedger],
    partitions: Mapping[str, int],
    *,
    began: int,
    clock: int,
    idle_ms: int,
) -> int | None:
    """Return how far event time has come on every partition that may still bring rows.

    None while that is not known: a partition has not reported, or has shown no row of the model
    yet and is behind or has not been waited for long enough: its rows may be on their way, older
    than what the others brought. Without any active partition, the farthest event time. ``partitions`` is
    how many each topic has, ``began`` when the model was first heard of; ``clock`` is now.
    """
    active: list[int] = []
    reached: list[int] = []
    for topic, ledgers in _by_topic(sources).items():
        if len(ledgers) < partitions[topic]:
            return None
        for ledger in ledgers:
            time = ledger.event_time.get(model)
            if time is not None:
                reached.append(time)
                if not ledger.idle(model, clock, idle_ms):
                    active.append(time)
            elif ledger.expects(model) or clock - began < idle_ms:
                return None
    return min(active) if active else max(reached, default=None)


def _by_topic(sources: Mapping[SourceKey, SourceLedger]) -> dict[str, list[SourceLedger]]:
    found: dict[str, list[SourceLedger]] = {}
    for (topic, _), ledger in sources.items():
        found.setdefault(topic, []).append(ledger)
    return found
