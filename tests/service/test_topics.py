"""Topics as they are created, compared and checked, on the broker that the run chooses."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from command import environment

from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.schemas.topics import Topics
from attributary.service.embedded import free_port
from attributary.service.settings import TopicLayout
from attributary.service.topics import check_topics, create_topics, topic_specs

integration = pytest.mark.integration


async def _described(
    connection: Connection, names: list[str]
) -> dict[str, tuple[int, dict[str, str]]]:
    admin = AIOKafkaAdminClient(**connection.client_arguments())
    await admin.start()
    try:
        topics = {topic["topic"]: topic for topic in await admin.describe_topics()}
        found = {}
        for name in names:
            (answer,) = await admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, name)]
            )
            (resource,) = answer.to_object()["resources"]
            configs = {e["config_names"]: e["config_value"] for e in resource["config_entries"]}
            found[name] = (len(topics[name]["partitions"]), configs)
        return found
    finally:
        await admin.close()


def test_every_role_has_a_specification_under_its_name():
    topics = Topics.with_prefix("p.")
    specs = topic_specs(topics, TopicLayout(rows_partitions=6, sketches_partitions=3))
    assert {spec.role: spec.name for spec in specs} == topics.model_dump()
    assert {spec.role: spec.partitions for spec in specs} == {
        "rows": 6, "models": 1, "grids": 1, "sketches": 3, "snapshots": 3,
        "attributions": 1, "drift": 1, "dead_letters": 1,
        "requests": 4, "requests_high": 4, "explanations": 4, "cancellations": 1,
    }  # fmt: skip
    policy = {spec.role: spec.configs["cleanup.policy"] for spec in specs}
    assert policy == {
        "rows": "delete", "models": "compact", "grids": "delete", "sketches": "compact,delete",
        "snapshots": "compact",
        "attributions": "delete", "drift": "delete", "dead_letters": "delete",
        "requests": "delete", "requests_high": "delete", "explanations": "compact,delete",
        "cancellations": "delete",
    }  # fmt: skip
    by_role = {spec.role: spec.configs for spec in specs}
    assert by_role["grids"]["retention.ms"] == by_role["grids"]["retention.bytes"] == "-1"
    assert by_role["drift"]["retention.ms"] == str(7 * 24 * 3600 * 1000)
    assert all(configs["max.message.bytes"] == str(8 * 2**20) for configs in by_role.values())


@integration
async def test_topics_are_created_as_specified_and_only_once(connection, topic_names):
    first = await create_topics(connection, topic_names)
    assert first.created == tuple(topic_names.model_dump().values())
    assert first.existing == first.differences == ()
    second = await create_topics(connection, topic_names)
    assert second.created == second.differences == ()
    assert second.existing == first.created
    described = await _described(connection, list(first.created))
    for spec in topic_specs(topic_names, TopicLayout()):
        partitions, configs = described[spec.name]
        assert partitions == spec.partitions
        assert {key: configs[key] for key in spec.configs} == spec.configs


@integration
async def test_what_differs_is_said_and_left_alone(connection, topics):
    wanted = TopicLayout(rows_partitions=2, rows_retention_hours=1)
    report = await create_topics(connection, topics, wanted)
    assert report.created == ()
    assert report.differences == (
        f"{topics.rows} has 4 partitions, the settings say 2",
        f"{topics.rows} has retention.ms=86400000, expected 3600000",
    )
    assert (await _described(connection, [topics.rows]))[topics.rows][0] == 4


@integration
async def test_only_the_missing_ones_are_created(connection, topic_names):
    some = topic_names.model_copy(update={"drift": f"{topic_names.drift}-later"})
    await create_topics(connection, some)
    report = await create_topics(connection, topic_names)
    assert report.created == (topic_names.drift,)


@integration
async def test_two_that_create_at_once_both_succeed(connection, topic_names):
    reports = await asyncio.gather(*(create_topics(connection, topic_names) for _ in range(3)))
    created = [name for report in reports for name in report.created]
    assert sorted(created) == sorted(topic_names.model_dump().values())


@integration
async def test_missing_topics_are_named_and_asking_creates_none(connection, topic_names):
    with pytest.raises(BrokerError) as caught:
        await check_topics(connection, topic_names)
    assert all(name in str(caught.value) for name in topic_names.model_dump().values())
    await create_topics(connection, topic_names)
    await check_topics(connection, topic_names)
    other = topic_names.model_copy(update={"rows": "no-such-topic"})
    for _ in range(2):  # were it created by the question, the second time would succeed
        with pytest.raises(BrokerError) as caught:
            await check_topics(connection, other)
    assert str(caught.value) == (
        f"the broker at {connection.bootstrap} lacks the topic no-such-topic: "
        "run `attributary topics create`, or check the topics' names"
    )
    await check_topics(connection, other, roles=["models", "sketches"])


@integration
async def test_more_copies_than_brokers(connection, topic_names, broker):
    """Kafka refuses them, in one line; the embedded broker takes any number."""
    if broker.kind == "embedded":
        await create_topics(connection, topic_names, TopicLayout(replication_factor=3))
        await check_topics(connection, topic_names)
        return
    with pytest.raises(
        BrokerError, match=r"refused to create topics: .*[Rr]eplication factor"
    ) as caught:
        await create_topics(connection, topic_names, TopicLayout(replication_factor=3))
    assert "\n" not in str(caught.value)


def _stderr_and_error(bootstrap: str) -> tuple[str, str, float]:
    """Create topics in a process of its own, where nothing captures what asyncio has to say."""
    code = (
        "import asyncio, sys\n"
        "from attributary.schemas.connection import Connection\n"
        "from attributary.schemas.topics import Topics\n"
        "from attributary.service.topics import create_topics\n"
        "try: asyncio.run(create_topics(Connection(bootstrap=sys.argv[1]), Topics()), debug=True)\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "default", "-c", code, bootstrap],
        capture_output=True, text=True, timeout=30, env=environment(), check=True,
    )  # fmt: skip
    return done.stdout, done.stderr, time.monotonic() - started


def test_no_broker_is_one_quiet_line_in_a_few_seconds():
    port = free_port()
    said, noise, seconds = _stderr_and_error(f"127.0.0.1:{port}")
    assert said == (
        f"BrokerError no broker at 127.0.0.1:{port} (connection refused): start one with "
        "`attributary up`, or name yours with `attributary --bootstrap HOST:PORT`\n"
    )
    assert "Unclosed" not in noise
    assert "never retrieved" not in noise
    assert seconds < 10


@pytest.mark.parametrize("answer", [None, b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_something_else_at_the_address_is_told_as_such(answer: bytes | None):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with subprocess.Popen(
            [sys.executable, "-c", _ANSWERER, str(port), repr(answer)],
            stdin=subprocess.PIPE, pass_fds=[server.fileno()], env=environment(FD=str(server.fileno())),
        ) as answerer:  # fmt: skip
            said, noise, seconds = _stderr_and_error(f"127.0.0.1:{port}")
            answerer.kill()
    expected = (
        "no answer within 3 s" if answer is None else "what listens there is not a Kafka broker"
    )
    assert f"no broker at 127.0.0.1:{port} ({expected}): name yours with" in said
    assert "never retrieved" not in noise
    assert seconds < 10


_ANSWERER = """
import ast, os, socket, sys, time
server = socket.socket(fileno=int(os.environ["FD"]))
answer = ast.literal_eval(sys.argv[2])
kept = []
while True:
    connection, _ = server.accept()
    if answer is None:
        kept.append(connection)
    else:
        connection.recv(1000); connection.sendall(answer); connection.close()
"""


async def test_the_first_address_that_answers_is_enough(broker: Any, topic_names: Topics):
    both = Connection(bootstrap=f"127.0.0.1:{free_port()},{broker.bootstrap}")
    report = await create_topics(both, topic_names)
    assert len(report.created) == len(Topics.model_fields)
