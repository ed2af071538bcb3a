"""Files in, messages out: what ``publish`` sends is what the file holds, and ``tail`` shows what is there."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import pty
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from aiokafka import AIOKafkaProducer
from command import ATTRIBUTARY, environment, error_line, run, wait_until
from records import read_topic

from attributary.schemas.arrow import decode_arrow_rows
from attributary.schemas.attribution import Accounting, FeatureScore, Window, WindowAttribution
from attributary.schemas.connection import Connection
from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.topics import Topics
from attributary.service.registry import find_card

pytestmark = pytest.mark.integration

Command = Callable[..., subprocess.CompletedProcess[str]]
ROWS = 5000


@pytest.fixture
def attributary(connection: Connection, topics: Topics) -> Command:
    """The command, on this test's own topics."""
    prefix = topics.rows.removesuffix("rows")

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run("--bootstrap", connection.bootstrap, "--prefix", prefix, *arguments)

    return call


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Rows with a category, integers, booleans, missing values, ids, times and weights."""
    rng = np.random.default_rng(7)
    amount = rng.normal(size=ROWS)
    return pd.DataFrame(
        {
            "key": [f"r{index:05d}" for index in range(ROWS)],
            "when": pd.Timestamp("2013-01-01", tz="UTC") + pd.to_timedelta(np.arange(ROWS), "s"),
            "amount": np.where(rng.random(ROWS) < 0.1, np.nan, amount),
            "count": rng.integers(0, 9, ROWS),
            "plan": rng.choice(["pro", "free"], ROWS),
            "member": rng.random(ROWS) < 0.5,
            "weight": rng.random(ROWS) + 0.5,
            "score": amount * 2,
        }
    )


def _rows(attributary: Command) -> list[dict[str, Any]]:
    done = attributary("tail", "--kind", "rows", "--no-follow", "--json")
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def _ids(connection: Connection, topics: Topics) -> Counter[str]:
    """How often each row is in the topic, by its id."""
    return Counter(
        name.decode()
        for record in read_topic(connection, topics.rows)
        for name in decode_arrow_rows(record.value).ids or ()
        if name is not None
    )


def _check(
    rows: list[dict[str, Any]], frame: pd.DataFrame, *, integers_as_text: bool = False
) -> None:
    """Every row of ``frame`` is among ``rows`` exactly once, with every value."""
    found = {row["id"]: row for row in rows}
    assert len(rows) == len(found) == len(frame)
    for expected in frame.to_dict("records"):
        row = found[expected["key"]]
        features = row["features"]
        missing = np.isnan(expected["amount"])
        assert features["amount"] == (None if missing else expected["amount"])
        count = str(expected["count"]) if integers_as_text else expected["count"]
        assert features["count"] == count
        assert features["plan"] == expected["plan"]
        assert features["member"] == expected["member"]
        assert set(features) == {"amount", "count", "plan", "member"}
        assert row["outputs"] == {"score": expected["score"]}
        assert row["model"] == "m"
        assert row["weight"] == pytest.approx(expected["weight"], rel=1e-15)
        moment = pd.Timestamp(row["time"], unit="s" if not isinstance(row["time"], str) else None)
        assert moment.tz_localize(None) == expected["when"].tz_localize(None)


COLUMNS = [
    *("--model", "m", "--outputs", "score", "--id-column", "key"),
    *("--time-column", "when", "--weight-column", "weight"),
]


@pytest.mark.parametrize("content", ["arrow", "json"])
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "tsv", "parquet"])
def test_a_tables_rows_arrive_with_every_value(
    attributary: Command, tmp_path: Path, frame: pd.DataFrame, kind: str, content: str
) -> None:
    path = tmp_path / f"rows.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pandas(frame), path, row_group_size=1234)
    else:
        frame.to_csv(
            path, index=False, sep="\t" if kind == "tsv" else ",", date_format="%Y-%m-%dT%H:%M:%SZ"
        )
    done = attributary("publish", str(path), *COLUMNS, "--as", content)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"published {ROWS:,} rows in ")
    assert "left out" not in done.stdout
    _check(_rows(attributary), frame)


@pytest.mark.parametrize("kind", ["jsonl", "ndjson.gz"])
def test_flat_json_lines(
    attributary: Command, tmp_path: Path, frame: pd.DataFrame, kind: str
) -> None:
    path = tmp_path / f"rows.{kind}"
    text = frame.to_json(orient="records", lines=True, date_format="iso", double_precision=15)
    path.write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
    done = attributary("publish", str(path), *COLUMNS)
    assert (done.returncode, done.stderr) == (0, "")
    exact = [json.loads(line) for line in text.splitlines()]
    _check(
        _rows(attributary),
        frame.assign(
            amount=[float("nan") if row["amount"] is None else row["amount"] for row in exact],
            score=[row["score"] for row in exact],
            weight=[row["weight"] for row in exact],
        ),
    )


def test_rows_as_they_travel_and_lines_that_are_none(attributary: Command, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = [
        '{"features":{"x":1},"outputs":0.5,"id":"a"}',
        "",
        "broken",
        '{"features":{"x":NaN},"outputs":[0.25,null],"id":"b","model":"other"}',
        '{"features":{"x":[1]},"outputs":0.5}',
        '[{"features":{"x":1},"outputs":0.5}]',
        '{"features":{"x":2},"outputs":0.5,"weight":-1}',
        '{"features":{"x":3},"outputs":{"y":1},"id":"c"}',
    ]
    path.write_text("\n".join(lines))
    done = attributary("publish", str(path), "--model", "m")
    assert done.returncode == 1
    assert "published 3 rows" in done.stdout
    assert "4 rows left out" in done.stdout
    said = done.stderr.splitlines()
    assert [line.split(": ")[2] for line in said] == ["line 3", "line 5", "line 6", "line 7"]
    found = {row["id"]: row for row in _rows(attributary)}
    assert set(found) == {"a", "b", "c"}
    assert found["b"]["model"] == "other"
    assert found["b"]["features"] == {"x": None}
    strict = attributary("publish", str(path), "--model", "m", "--strict")
    assert "line 3: neither JSON nor Arrow" in error_line(strict)


def test_rows_of_a_table_that_cannot_be_used_are_left_out_by_number(
    attributary: Command, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        "x,w,t,score\n"
        "1,1,2026-01-01T00:00:00Z,1\n"
        "2,0,2026-01-01T00:00:00Z,1\n"
        "3,1,,1\n"
        "4,1\n"
        "5,,2026-01-01T00:00:00Z,1\n"
        "6,1,2026-01-01T00:00:00Z,\n"
    )
    options = ("--outputs", "score", "--weight-column", "w", "--time-column", "t", "--model", "m")
    done = attributary("publish", str(path), *options)
    assert done.returncode == 1
    assert "published 2 rows" in done.stdout
    assert "row 2: weight must be above 0" in done.stderr
    assert "row 3: the time is missing" in done.stderr
    assert "line 5: 2 fields instead of 4" in done.stderr
    found = _rows(attributary)
    assert [row["features"]["x"] for row in found] == [1, 6]
    assert found[1]["outputs"]["score"] is None, "a missing output is data"
    strict = attributary("publish", str(path), *options, "--strict")
    assert strict.returncode == 2
    assert len(strict.stderr.splitlines()) == 1


def test_a_column_that_changes_its_type_is_explained(attributary: Command, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w") as file:
        file.write("code,score\n")
        file.writelines(f"{index},{index}.5\n" for index in range(600_000))
        file.write("12b,1\n")
    options = ("--model", "m", "--outputs", "score")
    done = attributary("publish", str(path), *options)
    assert done.returncode == 2
    error = done.stderr.splitlines()[-1]
    assert "invalid value '12b'" in error
    assert "--categorical" in error
    assert attributary("publish", str(path), *options, "--categorical", "code").returncode == 0


def test_times_as_numbers_need_their_unit(attributary: Command, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,t,score\n1,1700000000123,1\n")
    options = ("--model", "m", "--outputs", "score", "--time-column", "t")
    assert "--time-unit ms" in error_line(attributary("publish", str(path), *options))
    assert attributary("publish", str(path), *options, "--time-unit", "ms").returncode == 0
    (row,) = _rows(attributary)
    assert row["time"] == 1_700_000_000.123


def test_a_card_is_derived_once_and_only_where_there_is_none(
    attributary: Command, connection: Connection, topics: Topics, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("age,month,plan,score\n41,1,pro,0.5\n")
    base = ("publish", str(path), "--outputs", "score", "--model", "m")
    assert attributary(*base).returncode == 0
    assert asyncio.run(find_card(connection, topics, "m")) is None
    done = attributary(*base, "--categorical", "month")
    assert "registered m: 3 features, 2 of them categories" in done.stderr
    card = asyncio.run(find_card(connection, topics, "m"))
    assert card is not None
    assert [(f.name, f.kind) for f in card.features] == [
        ("age", "numeric"),
        ("month", "categorical"),
        ("plan", "categorical"),
    ]
    assert card.outputs == ["score"]
    assert "has a card already" in attributary(*base, "--register").stderr
    own = tmp_path / "card.json"
    own.write_text('{"model": "m", "outputs": ["score"], "strict": true}')
    assert attributary("register", str(own)).stdout.startswith(
        "replaced the card of m: no features"
    )
    card = asyncio.run(find_card(connection, topics, "m"))
    assert card is not None
    assert card.strict


def test_a_hundred_thousand_rows_take_seconds(attributary: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"f{index}": rng.normal(size=100_000) for index in range(12)})
    path = tmp_path / "rows.parquet"
    frame.to_parquet(path)
    began = time.monotonic()
    done = attributary("publish", str(path), "--model", "m", "--outputs", "f0")
    assert time.monotonic() - began < 15
    assert done.stdout.startswith("published 100,000 rows in ")


def test_a_rate_is_kept(attributary: Command, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,score\n" + "1,2\n" * 1000)
    began = time.monotonic()
    done = attributary("publish", str(path), "--model", "m", "--outputs", "score", "--rate", "500")
    assert time.monotonic() - began > 1.7
    assert "published 1,000 rows in 20 messages" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_says_how_many_rows_were_acknowledged_and_how_to_go_on(
    attributary: Command, connection: Connection, topics: Topics, tmp_path: Path, number: int
) -> None:
    path = tmp_path / "rows.csv"
    keys = [f"r{index}" for index in range(6000)]
    path.write_text("key,x,score\n" + "".join(f"{key},1,2\n" for key in keys))
    options = ("publish", str(path), "--model", "m", "--outputs", "score", "--id-column", "key")
    process = subprocess.Popen(
        [
            *(ATTRIBUTARY, "--bootstrap", connection.bootstrap),
            *("--prefix", topics.rows.removesuffix("rows")),
            *(*options, "--rate", "1000"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    wait_until(
        lambda: len(read_topic(connection, topics.rows)) >= 5, 30.0, lambda: "no rows in the topic"
    )
    process.send_signal(number)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err
    acknowledged = int(out.split()[1].replace(",", ""))
    assert 500 <= acknowledged < 6000
    assert f"stopped: {acknowledged:,} of " in err
    assert sum(_ids(connection, topics).values()) == acknowledged
    found = re.search(r"; --skip-rows (\d+) goes on from there", err)
    assert found is not None
    assert 0 < int(found[1]) <= acknowledged
    assert attributary(*options, "--skip-rows", found[1]).returncode == 0
    counts = _ids(connection, topics)
    assert set(counts) == set(keys)
    assert all(counts[key] == 1 for key in keys[: int(found[1])])
    assert max(counts.values()) <= 2


def test_on_a_terminal_there_is_a_progress_bar(
    connection: Connection, topics: Topics, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,score\n" + "1,2\n" * 2000)
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [
            *(ATTRIBUTARY, "--bootstrap", connection.bootstrap),
            *("--prefix", topics.rows.removesuffix("rows")),
            *("publish", str(path), "--model", "m", "--outputs", "score", "--rate", "2000"),
        ],
        stdout=subprocess.PIPE,
        stderr=follower,
        text=True,
        env=environment(TERM="xterm", COLUMNS="100"),
    )
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(leader)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "published 2,000 rows" in out
    assert "rows/s" in shown.decode()
    assert "━".encode() in shown


def _attribution(**fields: Any) -> WindowAttribution:
    score = FeatureScore(
        name="age\x1b[31m",
        score=0.91,
        stderr=0.01,
        interval=(0.89, 0.93),
        effective_rows=812.0,
        direction=1,
        strength_low=0.78,
        rank=1,
        effect=12.5,
        effect_stderr=0.5,
        missing=0.125,
    )
    second = score.model_copy(update={"name": "plan=pro", "rank": 2, "direction": -1, "score": 0.2})
    group = score.model_copy(update={"name": "plan", "effect": None, "missing": None})
    window = Window(kind="tumbling", start=1_700_000_000_000, end=1_700_000_060_000, seconds=60.0)
    values: dict[str, Any] = {
        "model": "churn",
        "output": "margin",
        "window": window,
        "revision": 1000,
        "final": True,
        "watermark": None,
        "computed_at": 0,
        "epochs": [0],
        "output_quartiles": None,
        "features": [second, score],
        "groups": [group],
        "accounting": Accounting(
            rows=1000,
            rows_accepted=5000,
            rows_rejected={"wrong_type": 2, "bad_time": 1},
            rows_late=4,
            offsets={"rows[0]": (0, 2600)},
            duplicates=0,
            gaps=0,
        ),
        **fields,
    }
    return WindowAttribution(**values)


async def _produce(
    connection: Connection, topic: str, *messages: tuple[bytes, list[tuple[str, bytes]]]
) -> None:
    producer = AIOKafkaProducer(**connection.client_arguments(), acks="all")
    await producer.start()
    try:
        for value, headers in messages:
            await producer.send_and_wait(topic, value, headers=headers)
    finally:
        await producer.stop()


def test_attributions_for_people_and_for_programs(
    attributary: Command, connection: Connection, topics: Topics
) -> None:
    life = Window(kind="lifetime", start=0, end=1)
    messages = [
        _attribution(),
        _attribution(model="other"),
        _attribution(window=life, revision=7, final=False),
        _attribution(output="second", revision=8),
    ]
    sent = [(message.to_bytes(), []) for message in messages]
    asyncio.run(_produce(connection, topics.attributions, *sent, (b"garbage", [])))
    shown = attributary("tail", "--no-follow", "--model", "churn", "-n", "1")
    assert shown.returncode == 0
    lines = shown.stdout.splitlines()
    assert lines[0] == (
        "churn · margin · tumbling 60 s from 2023-11-14 22:13:20 UTC · 1,000 rows, final"
    )
    assert "\x1b" not in shown.stdout
    first = next(line for line in lines if "age" in line)
    assert r"age\x1b[31m" in first
    for text in ("0.910", "[0.890, 0.930]", "↑", "12.500 ± 0.98", "812", "12.5%"):
        assert text in first
    ranked = [line.split()[1] for line in lines[2:5]]
    assert ranked == [r"age\x1b[31m", "plan=pro", "plan"]
    assert "accepted 5,000, rejected 3 (bad_time 1, wrong_type 2), late 4, gaps 0" in shown.stdout
    assert "rows[0] 0–2600" in shown.stdout

    def revisions(*options: str) -> list[int]:
        done = attributary("tail", "--no-follow", "--json", *options)
        assert done.returncode == 0
        return [json.loads(line)["revision"] for line in done.stdout.splitlines()]

    assert revisions("--model", "churn") == [1000, 7, 8]
    assert revisions("--window", "lifetime") == [7]
    assert revisions("--output", "second") == [8]
    assert revisions("-n", "2") == [1000, 1000]
    nothing = attributary("tail", "--no-follow", "--model", "nobody")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "no attributions there" in nothing.stderr


def test_dead_letters_show_why_and_where_and_never_drive_the_terminal(
    attributary: Command, connection: Connection, topics: Topics
) -> None:
    letter = DeadLetter(
        "rows", 2, 1234, "wrong_type", "not a row \x1b]0;owned\x07", 1_700_000_000_000, (0, 3)
    )
    hostile = b"\x1b[2J\x1b]0;title\x07\x00\xff" + b"x" * 10_000
    asyncio.run(
        _produce(
            connection,
            topics.dead_letters,
            (hostile, letter.headers([("model", b"churn")])),
            (b"plain", []),
        )
    )
    shown = attributary("tail", "--kind", "dead-letters", "--no-follow")
    assert shown.returncode == 0
    assert "\x1b" not in shown.stdout
    assert "\x07" not in shown.stdout
    assert "wrong_type  rows[2]@1234, rows 0, 3  2023-11-14 22:13:20 UTC" in shown.stdout
    assert r"\x1b[2J\x1b]0;title\x07\x00\xff" in shown.stdout
    assert "(10,016 bytes)" in shown.stdout
    assert "without its headers" in shown.stdout
    done = attributary(
        "tail", "--kind", "dead-letters", "--no-follow", "--json", "--model", "churn"
    )
    (line,) = done.stdout.splitlines()
    found = json.loads(line)
    assert (found["reason"], found["offset"], found["rows"]) == ("wrong_type", 1234, [0, 3])
    assert found["text"] is None


def test_tail_follows_until_it_has_enough(
    attributary: Command, connection: Connection, topics: Topics
) -> None:
    process = subprocess.Popen(
        [
            *(ATTRIBUTARY, "--bootstrap", connection.bootstrap),
            *("--prefix", topics.rows.removesuffix("rows"), "tail", "--json", "-n", "1"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    deadline = time.monotonic() + 20
    while process.poll() is None and time.monotonic() < deadline:
        asyncio.run(_produce(connection, topics.attributions, (_attribution().to_bytes(), [])))
        time.sleep(0.3)
    out, err = process.communicate(timeout=5)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["model"] == "churn"


def test_ctrl_c_ends_tail_quietly(connection: Connection, topics: Topics) -> None:
    process = subprocess.Popen(
        [
            *(ATTRIBUTARY, "--bootstrap", connection.bootstrap),
            *("--prefix", topics.rows.removesuffix("rows"), "tail"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    time.sleep(2.0)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert (out, err.strip()) == ("", "")


def test_topics_that_are_missing_are_named(connection: Connection, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x,score\n1,2\n")
    for arguments in (["tail"], ["publish", str(path), "--model", "m", "--outputs", "score"]):
        line = error_line(
            run("--bootstrap", connection.bootstrap, "--prefix", "not-there.", *arguments)
        )
        assert "not-there." in line
        assert "attributary topics create" in line
