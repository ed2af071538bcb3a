"""Messages of a release, kept for later ones to read, and the runs of the cores that they come from."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from attributary.schemas.arrow import ARROW_CONTENT, encode_arrow_rows
from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.card import Decayed, Feature, Hopping, Lifetime, ModelCard, Tumbling
from attributary.schemas.manifest import MANIFEST_KEY, Manifest
from attributary.schemas.sketch import decode_sketch
from attributary.schemas.topics import Topics
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.decode import Record
from attributary.workers.stream.ingest import PartitionIngest
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.options import IngestOptions, MergeOptions
from attributary.workers.stream.outgoing import flush_records

SAMPLES = Path(__file__).parents[1] / "contracts" / "samples"
TOPICS = Topics()
NOW = 1_700_000_000_000
START = NOW // 60_000 * 60_000
CARD = ModelCard(
    model="churn",
    features=[
        Feature(name="age", low=18.0, high=99.0),
        Feature(name="income", group="money"),
        Feature(name="debt", group="money"),
        Feature(name="plan", kind="categorical", levels=["free", "pro"]),
    ],
    outputs=["score"],
    allowed_lateness_seconds=10,
    windows=[
        Tumbling(seconds=20),
        Hopping(seconds=40, hop_seconds=20),
        Lifetime(),
        Decayed(half_life_seconds=60),
    ],
    samples=3,
)


@dataclass(frozen=True)
class Sample:
    """One record: a JSON message as it reads, or bytes in base64."""

    key: str | None = None
    value: bytes = b""
    headers: Sequence[tuple[str, bytes]] = ()

    def line(self) -> str:
        """Return it as a line of JSON."""
        try:
            body: dict[str, Any] = {"json": json.loads(self.value)}
        except ValueError:
            body = {"base64": base64.b64encode(self.value).decode()}
        headers = {name: value.decode() for name, value in self.headers}
        return json.dumps({"key": self.key, "headers": headers, **body}, ensure_ascii=False)

    @classmethod
    def of_line(cls, line: str) -> Sample:
        """Return the sample of a line."""
        found = json.loads(line)
        plain = found.get("json")
        value = base64.b64decode(found["base64"]) if plain is None else json.dumps(plain).encode()
        headers = [(name, text.encode()) for name, text in found["headers"].items()]
        return cls(found["key"], value, headers)


def read(release: str) -> dict[str, list[Sample]]:
    """Return a release's samples by the name of their topic without its prefix."""
    return {
        path.stem: [Sample.of_line(line) for line in path.read_text("utf-8").splitlines()]
        for path in sorted((SAMPLES / release).glob("*.jsonl"))
    }


def rows() -> list[Sample]:
    """Return messages of rows: arrays, the first array once more as Arrow, and one that is no row."""
    rng = np.random.default_rng(17)
    found = []
    for second in range(0, 90, 5):
        batch = []
        for index in range(4):
            age, income = round(rng.uniform(20, 80), 1), round(rng.lognormal(10, 0.5), 2)
            plan = str(rng.choice(["free", "pro"]))
            row = {
                "model": "churn",
                "id": f"r{second}-{index}",
                "time": START / 1000 + second + index,
                "features": {"age": age, "income": income, "debt": income / 3, "plan": plan},
                "outputs": {"score": round(age / 10 - (plan == "pro") + rng.normal(), 3)},
            }
            if index == 3:
                row |= {"weight": 2.5, "outputs": row["outputs"]["score"]}
                row["features"]["debt"] = None
            batch.append(row)
        found.append(Sample(value=json.dumps(batch).encode()))
    first = json.loads(found[0].value)
    columns = {name: [row["features"][name] for row in first] for name in first[0]["features"]}
    columns["score"] = [2.0, 3.0, 4.0, 5.0]
    columns["_time"] = pa.array([START + 91_000] * 4, pa.timestamp("ms"))
    columns["_id"] = [f"a{index}" for index in range(4)]
    arrow = encode_arrow_rows("churn", columns, ["score"])
    found.append(Sample(value=arrow, headers=[("content-type", ARROW_CONTENT.encode())]))
    found.append(Sample(value=b'{"model": "churn", "features": {"age": "old"}, "outputs": 1}'))
    return found


@dataclass
class Run:
    """What ingest and merge make of rows: the records of their topics."""

    grids: list[Sample]
    sketches: list[Sample]
    letters: list[Sample]
    results: list[WindowAttribution | WindowDrift]


def run(card: Sample, messages: Sequence[Sample]) -> Run:
    """Count rows on one partition in blocks of 8 offsets, and merge them."""
    catalogue, grids = ControlCatalogue(), []
    catalogue.add_card(b"churn", card.value)
    options = IngestOptions(block_offsets=8, grid_rows=20, grid_wait_seconds=1)
    core = PartitionIngest(TOPICS.rows, 0, 0, catalogue, options, partitions=1)
    for offset, message in enumerate(messages):
        taken = Record(offset, START + 95_000, message.value, headers=tuple(message.headers))
        core.add([taken], now=0.0)
        for proposal in core.proposals(now=1e6):
            catalogue.add_grid(proposal.to_bytes())
            grids.append(Sample("churn", proposal.to_bytes()))
    core.count(now=1e6)
    sent = flush_records(core.flush(len(messages)), TOPICS, 1)
    letters, sketches = (
        [
            Sample(record.key and record.key.decode(), record.value or b"", record.headers)
            for record in sent
            if record.topic == topic
        ]
        for topic in (TOPICS.dead_letters, TOPICS.sketches)
    )
    return Run(grids, sketches, letters, merged(card, grids, sketches))


def merged(
    card: Sample, grids: Sequence[Sample], sketches: Sequence[Sample]
) -> list[WindowAttribution | WindowDrift]:
    """Return what merge publishes of a sketches topic."""
    catalogue = ControlCatalogue()
    catalogue.add_card(b"churn", card.value)
    for grid in grids:
        catalogue.add_grid(grid.value)
    merge = MergePartition(catalogue, MergeOptions(idle_seconds=1e6))
    for sketch in sketches:
        if (sketch.key or "").encode().startswith(MANIFEST_KEY):
            merge.add_manifest(Manifest.from_bytes(sketch.value), START)
        else:
            merge.add_sketch(*decode_sketch(sketch.value), START)
    return list(merge.publish(now=START + 96_000))
