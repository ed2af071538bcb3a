"""Cards from training tables and rows from queries, on a real broker."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from records import read_topic

from attributary import Publisher
from attributary.schemas.arrow import decode_arrow_rows
from attributary.schemas.card import ModelCard
from attributary.schemas.connection import Connection
from attributary.schemas.row import decode_json_rows
from attributary.schemas.topics import Topics
from attributary.service.cli import cli
from attributary.service.registry import find_card

pytestmark = pytest.mark.integration


def attributary(connection: Connection, topics: Topics, *arguments: str) -> Any:
    common = ["--bootstrap", connection.bootstrap, "--prefix", topics.rows.removesuffix("rows")]
    done = CliRunner().invoke(cli, [*common, *arguments], standalone_mode=False)
    assert done.exception is None, done.exception
    return done


def test_the_card_of_a_wide_model_is_registered_whole(
    connection: Connection, topics: Topics, tmp_path: Path
) -> None:
    """It is larger than what Kafka's clients send unless they are told to."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.standard_normal((200, 800)), columns=[f"x{i}" for i in range(800)])
    frame.assign(y=frame.x0).to_parquet(tmp_path / "train.parquet")
    out = tmp_path / "card.json"
    arguments = ["baseline", str(tmp_path / "train.parquet"), "--model", "wide", "--outputs", "y"]
    done = attributary(connection, topics, *arguments, "--register", "--out", str(out))
    assert "registered wide" in done.stderr
    assert out.stat().st_size > 2**20
    found = asyncio.run(find_card(connection, topics, "wide"))
    assert found == ModelCard.from_bytes(out.read_bytes())
    again = attributary(connection, topics, "register", str(out))
    assert again.stdout.startswith("replaced the card of wide: 800 features, 1 output")


def test_a_query_is_published_with_its_times(
    connection: Connection, topics: Topics, tmp_path: Path
) -> None:
    duckdb = pytest.importorskip("duckdb")
    path = tmp_path / "log.duckdb"
    with duckdb.connect(path) as made:
        made.execute(
            "CREATE TABLE log AS SELECT range AS x, range / 4 AS score, "
            "strftime(TIMESTAMP '2026-07-01 14:00:00' + INTERVAL (range) SECOND, '%d.%m.%Y %H:%M:%S') AS at "
            "FROM range(2500)"
        )
        made.execute("UPDATE log SET \"at\" = 'soon' WHERE x = 7")
    done = attributary(
        connection, topics, "publish", "--query", "FROM log ORDER BY x", "--database", str(path),
        "--model", "m", "--outputs", "score", "--time-column", "at",
        "--time-format", "%d.%m.%Y %H:%M:%S", "--time-zone", "Europe/Berlin",
    )  # fmt: skip
    assert done.return_value == 1
    assert done.stdout.startswith("published 2,499 rows in 2 messages")
    assert "query: left out: row 8: the time 'soon' is not '%d.%m.%Y %H:%M:%S'" in done.stderr
    rows = [decode_arrow_rows(record.value) for record in read_topic(connection, topics.rows)]
    x = np.concatenate([each.features["x"].to_numpy() for each in rows])
    times = np.concatenate([each.time for each in rows if each.time is not None])
    assert sorted(x) == [*range(7), *range(8, 2500)]
    np.testing.assert_array_equal(times, 1_782_907_200_000 + 1000 * x)


async def test_a_watched_function_publishes_every_row_once(
    connection: Connection, topics: Topics
) -> None:
    async with Publisher(
        connection, model="m", topic=topics.rows, feature_names=["a", "b"]
    ) as publisher:

        @publisher.watch(features="batch", ids="names")
        async def predict(names: list[str], batch: Any) -> Any:
            await asyncio.sleep(0)
            return batch.sum(axis=1)

        batches = [np.full((10, 2), float(number)) for number in range(30)]
        await asyncio.gather(
            *(
                predict([f"{number}-{row}" for row in range(10)], batch)
                for number, batch in enumerate(batches)
            )
        )
        assert await publisher.aflush()
        assert (publisher.published, publisher.invalid) == (300, 0)

    def read() -> dict[Any, Any]:
        found = {}
        for record in read_topic(connection, topics.rows):
            for _, _, row in decode_json_rows(record.value, model="m").rows:
                assert row.id not in found
                found[row.id] = row.outputs
        return found

    expected = {f"{n}-{row}": 2.0 * n for n in range(30) for row in range(10)}
    assert await asyncio.to_thread(read) == expected
