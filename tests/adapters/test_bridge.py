"""The bridge's core against simulated crashes and hand-overs: every inference is published exactly once."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from aiokafka import ConsumerRecord

from attributary.schemas.adapters.convert import Converter
from attributary.schemas.adapters.formats import Adapter
from attributary.schemas.adapters.inference import Naming
from attributary.schemas.adapters.pairing import Log, Place
from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.row import decode_json_rows
from attributary.schemas.topics import Topics
from attributary.workers.adapt.core import AdaptCore, Work
from attributary.workers.adapt.origins import Published, decode_origins, encode_origins
from attributary.workers.stream.outgoing import Outgoing

TOPICS = Topics()


def _record(log: Log, offset: int, body: object, name: str | None = None) -> ConsumerRecord:
    headers = () if name is None else (("x-request-id", name.encode()),)
    value = json.dumps(body).encode()
    return ConsumerRecord(*log, offset, 1000, 0, None, value, None, -1, len(value), headers)


def _foreign(rng: random.Random) -> tuple[dict[Log, list[ConsumerRecord]], set[str], int]:
    """Return logs of halves, inferences and broken messages, the ids of all rows, and how many are broken."""
    logs: dict[Log, list[ConsumerRecord]] = {("t", part): [] for part in range(3)}
    ids: set[str] = set()
    broken = 0
    waiting: list[tuple[object, str]] = []

    def write(body: object, name: str | None = None) -> Place:
        log = rng.choice(list(logs))
        logs[log].append(_record(log, len(logs[log]), body, name))
        return Place(log, len(logs[log]) - 1)

    for number in range(60):
        name, rows = f"r{number}", rng.choice((1, 1, 3))
        asked = {"instances": [[number, row] for row in range(rows)]}
        said = {"predictions": [float(number)] * rows}
        kind = rng.random()
        if kind < 0.1:
            write({"nothing": name})
            broken += 1
            continue
        if kind < 0.3:
            (topic, partition), offset = write({**asked, **said})
            name = f"{topic}/{partition}/{offset}"
        else:
            halves: list[object] = [asked, said]
            rng.shuffle(halves)
            write(halves[0], name)
            waiting.append((halves[1], name))
        ids |= {name} if rows == 1 else {f"{name}/{row}" for row in range(rows)}
        while waiting and rng.random() < 0.6:
            write(*waiting.pop(rng.randrange(len(waiting))))
    for half in waiting:
        write(*half)
    return logs, ids, broken


class _Process:
    """A bridge's life between crashes: its core, what it has committed, and the topics that it writes to."""

    def __init__(self, logs: dict[Log, list[ConsumerRecord]], rng: random.Random) -> None:
        self.logs = logs
        self.rng = rng
        self.committed = dict.fromkeys(logs, 0)
        self.rows: list[Outgoing] = []
        self.letters: list[Outgoing] = []
        self.crash()

    def crash(self) -> None:
        adapter = Adapter("tfserving", Naming(model="m"))
        self.core = AdaptCore(Converter(adapter), TOPICS, batch_rows=self.rng.choice((1, 4, 50)))
        self.take_over()

    def take_over(self) -> None:
        for log, start in self.committed.items():
            self.core.begin(log, start)
        for message in self.rows:
            self.core.published.learn(message.headers, self.committed)

    def hand_over(self) -> None:
        for log in self.logs:
            self.core.end(log)
        self.take_over()

    def step(self) -> None:
        log = self.rng.choice(list(self.logs))
        position = self.core.positions[log]
        records = self.logs[log][position : position + self.rng.randrange(1, 8)]
        work = Work()
        self.core.add(log, records, 0.0, work)
        sent = [(self.letters, m) for m in work.letters] + [(self.rows, m) for m in work.messages]
        fate = self.rng.random()
        if fate < 0.15:  # it dies while it sends
            sent = sent[: self.rng.randrange(len(sent) + 1)]
        for topic, message in sent:
            topic.append(message)
        if fate < 0.15:
            self.crash()
        elif fate < 0.3:
            self.committed = self.core.commits()
        elif fate < 0.35:
            self.hand_over()

    def done(self) -> bool:
        return all(self.core.positions[log] == len(records) for log, records in self.logs.items())


@pytest.mark.parametrize("seed", range(40))
def test_every_inference_is_published_once_whatever_dies(seed: int) -> None:
    rng = random.Random(seed)
    logs, ids, broken = _foreign(rng)
    process = _Process(logs, rng)
    steps = 0
    while not process.done():
        process.step()
        steps += 1
        assert steps < 5000
    found = Counter(
        row.id
        for message in process.rows
        for _, _, row in decode_json_rows(message.value or b"").rows
    )
    assert found == Counter(ids)
    letters = {DeadLetter.from_headers(letter.headers).origin for letter in process.letters}
    assert len(letters) == broken
    assert len(process.core.converter.pairing) == 0


def test_a_repeated_pair_is_known_after_a_restart() -> None:
    log: Log = ("t", 0)
    pair = [({"instances": [[1]]}, "a"), ({"predictions": [2]}, "a")]
    records = [_record(log, offset, *half) for offset, half in enumerate(pair * 2)]
    process = _Process({log: records}, random.Random(1))
    work = Work()
    process.core.add(log, records[:2], 0.0, work)
    process.rows += work.messages
    process.crash()
    again = Work()
    process.core.add(log, records, 0.0, again)
    assert (len(work.messages), len(again.messages), again.repeated) == (1, 0, 2)
    assert process.core.converter.pairing.lost == {"repeated": 2}
    assert process.core.commits() == {log: 4}


def test_a_record_that_waits_holds_the_commit_back() -> None:
    log: Log = ("t", 0)
    records = [
        _record(log, 0, {"instances": [[1]], "predictions": [1]}),
        _record(log, 1, {"instances": [[1]]}, "a"),
        _record(log, 2, {"instances": [[1]], "predictions": [1]}),
    ]
    core = AdaptCore(Converter(Adapter("tfserving", Naming(model="m"))), TOPICS, batch_rows=10)
    core.begin(log, 0)
    core.add(log, records, 0.0, Work())
    assert core.commits() == {log: 1}
    core.converter.pairing.end()
    assert core.commits() == {log: 3}


def test_rows_of_a_record_that_no_message_can_hold_are_a_letter() -> None:
    log: Log = ("t", 0)
    name = "x" * 400
    body = {"instances": [{name: 1.5}] * 18_000, "predictions": [1] * 18_000}
    core = AdaptCore(Converter(Adapter("tfserving", Naming(model="m"))), TOPICS, batch_rows=10)
    core.begin(log, 0)
    work = Work()
    core.add(log, [_record(log, 0, body)], 0.0, work)
    (letter,) = work.letters
    assert DeadLetter.from_headers(letter.headers).reason == "too_large"
    assert (work.messages, work.rejected) == ([], {"too_large": 18_000})


def test_origins_come_back_as_they_were_and_foreign_headers_are_none() -> None:
    places = [Place(("a.b/c", 3), offset) for offset in (5, 6, 7, 9)] + [Place(("t", 0), 1)]
    headers = [("attributary-origins", encode_origins(places))]
    assert dict(decode_origins(headers)) == {("a.b/c", 3): (5, 6, 7, 9), ("t", 0): (1,)}
    for value in (b"", b"[]", b"{", b'{"t": "1"}', b'{"t/0": "x"}', b'{"t/0": 3}', b"\xff"):
        assert decode_origins([("attributary-origins", value)]) == []
    published = Published()
    published.learn(headers, {("t", 0): 2, ("a.b/c", 3): 6})
    assert len(published) == 3
    assert published.take(Place(("a.b/c", 3), 9))
    assert not published.take(Place(("a.b/c", 3), 9))
    published.forget(("a.b/c", 3))
    assert len(published) == 0
