"""Rows of DuckDB queries: as they come, with times of their own, and queries that cannot work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from attributary.schemas.arrow import decode_arrow_rows
from attributary.schemas.errors import ConfigurationError
from attributary.service.cli import cli
from attributary.service.columns import Choice, choose_typed
from attributary.service.event_times import EventTimes
from attributary.service.file_messages import TableMessages
from attributary.service.json_lines import JsonLines
from attributary.service.query_rows import QueryRows

duckdb = pytest.importorskip("duckdb")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "log.duckdb"
    with duckdb.connect(path) as made:
        made.execute(
            "CREATE TABLE log AS SELECT range AS age, ['free', 'pro'][1 + range % 2] AS plan, "
            "range * 0.5::DECIMAL(6, 2) AS margin, [range] AS nested, "
            "TIMESTAMP '2026-07-01 14:00:00' + INTERVAL (range) SECOND AS at "
            "FROM range(20000)"
        )
    return path


def test_a_query_over_a_database_makes_rows_with_its_times(database: Path) -> None:
    rows = QueryRows("SELECT * FROM log WHERE age < 17000 ORDER BY age", database)
    columns = choose_typed(Choice(outputs=("margin",), time="at"), rows.schema)
    assert columns.features == ("age", "plan")
    assert columns.left_out == ("nested (list<l: int64>)",)
    rejected: list[str] = []
    messages = TableMessages(
        "m",
        columns,
        as_arrow=True,
        batch_rows=5000,
        times=EventTimes(zone="Europe/Berlin"),
        reject=rejected.append,
    )
    found = [
        decode_arrow_rows(message.value)
        for batch in rows.batches(columns.all)
        for message in messages.encode(batch)
    ]
    assert rejected == []
    assert max(each.rows for each in found) == 5000
    age = np.concatenate([each.features["age"].to_numpy() for each in found])
    assert age.tolist() == list(range(17_000))
    output = np.concatenate([each.outputs["margin"] for each in found])
    np.testing.assert_array_equal(output, np.arange(17_000) * 0.5)
    times = np.concatenate([each.time for each in found if each.time is not None])
    np.testing.assert_array_equal(times, 1_782_907_200_000 + 1000 * np.arange(17_000))
    assert rows.progress() == (17_000, 0)
    with duckdb.connect(database) as again:  # it was only read, and let go
        assert again.execute("SELECT count(*) FROM log").fetchone() == (20_000,)


def test_a_query_names_files_and_says_which_row_has_no_time(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(
        pa.table({"x": [1.0, 2.0, 3.0], "y": [1, 2, 3], "at": ["2026-07-01", "soon", None]}), path
    )
    rows = QueryRows(f"FROM '{path}'")
    columns = choose_typed(Choice(outputs=("y",), time="at"), rows.schema)
    rejected: list[str] = []
    messages = TableMessages(
        "m", columns, as_arrow=False, batch_rows=9, times=EventTimes(), reject=rejected.append
    )
    (message,) = [m for b in rows.batches(columns.all) for m in messages.encode(b)]
    (row,) = json.loads(message.value)
    assert (row["features"], row["time"]) == ({"x": 1.0}, 1_782_864_000.0)
    assert rejected == [
        "row 2: the time 'soon' is not ISO 8601 (--time-format says another)",
        "row 3: the time is missing",
    ]


@pytest.mark.parametrize("as_arrow", [True, False])
def test_every_message_says_how_far_it_goes_and_rows_before_can_be_skipped(as_arrow: bool) -> None:
    query = (
        "SELECT range AS x, 1 AS y, CASE WHEN range % 7 = 3 THEN NULL ELSE range END AS seconds "
        "FROM range(20000)"
    )

    def messages(skip: int) -> tuple[list[tuple[int, list[float]]], list[str]]:
        rows, rejected = QueryRows(query), list[str]()
        made = TableMessages(
            "m",
            choose_typed(Choice(outputs=("y",), time="seconds"), rows.schema),
            as_arrow=as_arrow,
            batch_rows=1000,
            times=EventTimes(),
            reject=rejected.append,
            skip=skip,
        )
        found = []
        for batch in rows.batches(["x", "y", "seconds"]):
            for message in made.encode(batch):
                if as_arrow:
                    x = decode_arrow_rows(message.value).features["x"].to_pylist()
                else:
                    x = [row["features"]["x"] for row in json.loads(message.value)]
                found.append((message.upto, x))
        return found, rejected

    every, rejected = messages(0)
    assert [x for _, xs in every for x in xs] == [x for x in range(20_000) if x % 7 != 3]
    for upto, xs in every:
        assert upto == xs[-1] + 1
    assert rejected[:2] == [f"row {n}: the time is missing" for n in (4, 11)]
    for skip in (every[3][0], every[-2][0], every[-1][0]):
        rest, rejected = messages(skip)
        expected = [x for x in range(skip, 20_000) if x % 7 != 3]
        assert [x for _, xs in rest for x in xs] == expected
        assert all(int(text.split()[1][:-1]) > skip for text in rejected)


def test_lines_say_how_far_they_go_and_can_be_skipped(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [json.dumps({"x": number, "y": 1}) for number in range(50)]
    lines[10] = ""
    lines[20] = "no row"
    path.write_text("\n".join(lines))

    def messages(skip: int) -> list[tuple[int, list[float]]]:
        made = JsonLines(
            path, "m", Choice(outputs=("y",)), times=EventTimes(), reject=lambda _: None, skip=skip
        )
        return [
            (message.upto, [row["features"]["x"] for row in json.loads(message.value)])
            for message in made.messages(8)
        ]

    every = messages(0)
    for upto, xs in every:
        assert upto == xs[-1] + 1
    for skip in (every[0][0], every[2][0], 50):
        assert [x for _, xs in messages(skip) for x in xs] == [
            x for x in range(skip, 50) if x not in (10, 20)
        ]


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT * FROM 'none.parquet'", "No files found"),
        ("CREATE TABLE t (a INT)", "must end with a SELECT"),
        ("", "must end with a SELECT"),
        ("SELECT 1 AS a, 2 AS a", "names a column twice: a"),
        ("SELECT 1 AS a; DROP TABLE x", "must end with a SELECT"),
    ],
)
def test_queries_that_cannot_work(query: str, what: str) -> None:
    with pytest.raises(ConfigurationError, match=what) as caught:
        QueryRows(query)
    assert "\n" not in str(caught.value)


def test_what_fails_under_way_is_one_clear_error(tmp_path: Path, database: Path) -> None:
    with pytest.raises(ConfigurationError, match="there is no such file"):
        QueryRows("SELECT 1", tmp_path / "none.duckdb")
    (tmp_path / "text.duckdb").write_text("not a database")
    with pytest.raises(ConfigurationError, match="--query"):
        QueryRows("SELECT 1", tmp_path / "text.duckdb")
    with pytest.raises(ConfigurationError, match="read-only"):
        QueryRows("INSERT INTO log SELECT * FROM log; SELECT 1 AS a", database)
    late = "SELECT CAST(CASE WHEN range > 900000 THEN 'x' ELSE '1' END AS INT) AS a FROM range(1000000)"
    rows = QueryRows(late)
    with pytest.raises(ConfigurationError, match="Could not convert string"):
        list(rows.batches(["a"]))


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        ([], "publish FILE, or publish --query"),
        (["rows.csv", "--query", "SELECT 1"], "publish FILE, or publish --query"),
        (["rows.csv", "--database", "x"], "--database belongs to --query"),
        (["--query", "SELECT 1", "--format", "csv"], "--query has none"),
        (["--query", "SELECT 1 AS a"], "--outputs"),
        (["--query", "SELECT 1 AS a", "--time-zone", "Nowhere"], "--time-zone 'Nowhere'"),
    ],
    ids=str,
)
def test_options_that_contradict_each_other(arguments: list[str], what: str) -> None:
    done: Any = CliRunner().invoke(
        cli, ["publish", "--model", "m", *arguments], standalone_mode=False
    )
    assert isinstance(done.exception, ConfigurationError), done.exception
    assert what in str(done.exception)
