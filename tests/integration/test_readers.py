"""What docs/read.md tells readers that know nothing of this project, run as it is written on Apache Kafka.

On the embedded broker test_docs.py follows the page; kcat does not get on with that broker.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from broker_kafka import jars
from doc_blocks import ROOT, blocks
from stream_workers import Workers

from attributary import Publisher
from attributary.schemas.attribution import WindowAttribution
from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
_BLOCKS = blocks(ROOT / "docs" / "read.md")


class Results:
    """A topic of attributions that a worker has published."""

    def __init__(self, connection: Connection, topics: Topics) -> None:
        self._connection = connection
        self._topics = topics

    def written(self, start: str) -> str:
        """Return the one example that begins so, with this broker's address and topic."""
        (text,) = [block.text for block in _BLOCKS if block.text.startswith(start)]
        text = text.replace("localhost:9092", self._connection.bootstrap)
        return text.replace("attributary.attributions", self._topics.attributions)

    def run(self, command: str, *more: str, path: str = "") -> list[dict[str, Any]]:
        """Run a command and return the messages that it prints."""
        done = subprocess.run(
            [*shlex.split(command), *more],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PATH": f"{path}{os.pathsep}{os.environ['PATH']}"},
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def on_kafka(request: pytest.FixtureRequest) -> None:
    """Skip on the embedded broker, before anything starts."""
    if request.config.getoption("--broker") != "kafka":
        pytest.skip("needs --broker kafka")


@pytest.fixture
def results(on_kafka: None, connection: Connection, topics: Topics) -> Results:
    """Results about 300 rows of the model ``churn``."""
    workers = Workers(connection, topics, {})
    try:
        workers.start()
        with Publisher(connection, model="churn", topic=topics.rows) as publisher:
            for index in range(300):
                publisher.publish(
                    {"age": index % 60, "noise": index % 7}, outputs=float(index % 60)
                )
        found = Results(connection, topics)
        _python(found)  # returns once there is one
        return found
    finally:
        workers.close()


def _python(results: Results) -> list[str]:
    """Run the example in Python until it has shown one feature of one message."""

    class EnoughError(Exception):
        pass

    printed: list[str] = []

    def show(*values: object) -> None:
        printed.append(" ".join(map(str, values)))
        raise EnoughError

    with pytest.raises(EnoughError):
        exec(results.written("import asyncio, json\n"), {"print": show})  # noqa: S102
    return printed


def test_readers_need_nothing_but_the_docs(results: Results, tmp_path: Path) -> None:
    (line,) = _python(results)
    model, output, kind, feature, score = line.split()
    assert (model, output, kind, feature) == ("churn", "output", "lifetime", "age")
    assert float(score) == pytest.approx(1.0, abs=1e-6)

    example = results.written("import asyncio, json\n")
    code = [
        text for text in example.splitlines() if text and not text.startswith(("import", "from"))
    ]
    assert len(code) <= 10

    _console_consumer(tmp_path)
    java = results.written("kafka-console-consumer.sh ")
    found = [results.run(java, "--max-messages", "1", path=str(tmp_path))]
    if shutil.which("kcat") is not None:
        found.append(results.run(results.written("kcat ")))
    for messages in found:
        message = messages[0]
        assert re.fullmatch(r"attributary\.attribution/\d+", message["schema"])
        assert message == json.loads(WindowAttribution.model_validate(message).to_bytes())
        assert message["features"][0]["name"] == "age"


def _console_consumer(folder: Path) -> None:
    """Write what Kafka's own script does: it starts this class with Kafka's jars."""
    script = folder / "kafka-console-consumer.sh"
    script.write_text(
        "#!/bin/sh\nexec java -Xmx256m -XX:TieredStopAtLevel=1 "
        f"-cp '{jars()}/*' org.apache.kafka.tools.consumer.ConsoleConsumer \"$@\"\n"
    )
    script.chmod(0o755)
