"""``attributary report`` on a real broker: from the topics to a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from command import error_line, run
from results import LIFETIME, MAY, attribution, drift, hopping

from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics

pytestmark = pytest.mark.integration


@pytest.fixture
async def options(connection: Connection, topics: Topics) -> list[str]:
    """Topics with results, among them another model's; the options that name them."""
    async with AIOKafkaProducer(**connection.client_arguments()) as producer:
        other = attribution(hopping(MAY)).model_copy(update={"model": "other"})
        for message in (attribution(LIFETIME, final=False), other, attribution(hopping(MAY))):
            await producer.send_and_wait(topics.attributions, message.to_bytes())
        await producer.send_and_wait(topics.drift, drift(hopping(MAY)).to_bytes())
    return ["--bootstrap", connection.bootstrap, "--prefix", topics.rows.removesuffix("rows")]


def test_it_writes_a_page_of_the_newest_final_window(options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    done = run(*options, "report", "--model", "flight-delay", "--save", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"1 output of flight-delay in {path}\n"
    page = path.read_text(encoding="utf-8")
    assert "28 days to 2013-05-29" in page
    assert "Drift against the first full window" in page
    piped = run(*options, "report", "--model", "other", "--window", "hopping", "--save", "-")
    assert piped.stdout.startswith("<!doctype html>")
    assert "compared with nothing" in piped.stdout


def test_errors_are_one_line_and_leave_the_file_alone(options: list[str], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("mine")
    line = error_line(run(*options, "report", "--model", "nobody", "--save", str(path)))
    assert "no results of a model 'nobody': there are flight-delay, other" in line
    assert path.read_text() == "mine"
    line = error_line(
        run(*options, "report", "--model", "other", "--save", str(tmp_path / "no" / "f"))
    )
    assert "No such file or directory" in line
