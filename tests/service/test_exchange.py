"""How an explainer tells answers from progress: by the header, whatever the key looks like."""

from __future__ import annotations

from typing import Literal

from aiokafka import ConsumerRecord

from attributary.schemas.explanation import FINAL, KIND_HEADER, PROGRESS, Explanation, Progress
from attributary.service.exchange import Exchange, _Waiting

STATE: Literal["running"] = "running"
TOLD = Progress(id="x", state=STATE, attempt=1, done=1, total=2, at=0)
ANSWER = Explanation(
    id="x", model="m", method="t-explainer", outcome="expired", seed=0, attempt=1,
    requested_at=0, computed_at=0, seconds=0.0,
)  # fmt: skip


def record(key: bytes, value: bytes, kind: bytes | None) -> ConsumerRecord:
    headers = () if kind is None else ((KIND_HEADER, kind),)
    return ConsumerRecord("explanations", 0, 0, 0, 0, key, value, None, 0, 0, headers)


async def test_the_header_says_what_a_record_is() -> None:
    exchange = Exchange("127.0.0.1:1", "m", None)
    seen: list[Progress] = []
    waiting = exchange._waiting["x"] = _Waiting(seen.append)
    foreign = exchange._waiting["p|x"] = _Waiting(seen.append)

    exchange._take(record(b"x", ANSWER.to_bytes(), b"of a later version"))
    exchange._take(record(b"x", ANSWER.to_bytes(), None))
    assert not waiting.answer.done()
    assert seen == []

    # An answer under a key that looks like progress is nobody's progress.
    exchange._take(record(b"p|x", ANSWER.to_bytes(), FINAL))
    assert foreign.answer.result() == ANSWER
    assert not waiting.answer.done()

    exchange._take(record(b"p|x", TOLD.to_bytes(), PROGRESS))
    assert seen == [TOLD]
    exchange._take(record(b"x", ANSWER.to_bytes(), FINAL))
    assert waiting.answer.result() == ANSWER
