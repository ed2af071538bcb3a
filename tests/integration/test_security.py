"""TLS and SASL on a real Apache Kafka: everything that connects, and what is said where it must not."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from broker_secure import KEY_PASSWORD, PASSWORD, SCRAM, USER, SecureKafka
from command import Running, environment, error_line, run, wait_until

from attributary import Publisher, subscribe
from attributary.schemas.connection import Connection
from attributary.schemas.errors import BrokerError
from attributary.schemas.row import decode_json_rows
from attributary.schemas.sasl import Sasl
from attributary.schemas.tls import Tls
from attributary.schemas.topics import Topics
from attributary.service.accounting import read_accounting
from attributary.service.reader import Reader
from attributary.service.topics import check_topics, create_topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

SECRETS = (PASSWORD, KEY_PASSWORD, "wrong-password")
# A command that is refused ends within this, the interpreter's own start included.
_REFUSED_SECONDS = 8.0


@pytest.fixture(scope="module")
def secure(request: pytest.FixtureRequest) -> Iterator[SecureKafka]:
    if request.config.getoption("--broker") != "kafka":
        pytest.skip("the embedded broker has neither TLS nor SASL: --broker kafka")
    broker = SecureKafka()
    try:
        broker.start()
        yield broker
    finally:
        broker.close()


@dataclass(frozen=True)
class Way:
    """One way in: a listener, and what a client says of itself."""

    listener: str
    tls: dict[str, str]
    sasl: dict[str, Any]

    def connection(self, broker: SecureKafka) -> Connection:
        files = {
            name: str(broker.folder / value) if name.endswith("_file") else value
            for name, value in self.tls.items()
        }
        return Connection(
            bootstrap=getattr(broker, self.listener), tls=Tls(**files), sasl=Sasl(**self.sasl)
        )

    def variables(self, broker: SecureKafka) -> dict[str, str]:
        """The same in the environment."""
        connection = self.connection(broker)
        found = {"ATTRIBUTARY_CONNECTION__BOOTSTRAP": connection.bootstrap}
        for group, given, model in (
            ("TLS", self.tls, connection.tls),
            ("SASL", self.sasl, connection.sasl),
        ):
            for name in given:
                value = getattr(model, name)
                text = value.get_secret_value() if hasattr(value, "get_secret_value") else value
                found[f"ATTRIBUTARY_CONNECTION__{group}__{name.upper()}"] = str(text)
        return found


CA = {"ca_file": "ca.pem"}
CLIENT = {**CA, "cert_file": "client.crt", "key_file": "client.key", "key_password": KEY_PASSWORD}


def _user(mechanism: str, password: str = PASSWORD, **more: Any) -> dict[str, Any]:
    return {"mechanism": mechanism, "username": USER, "password": password, **more}


WAYS = {
    **{mechanism: Way("sasl", CA, _user(mechanism)) for mechanism in ("PLAIN", *SCRAM)},
    "client certificate": Way("mutual", CLIENT, {}),
    "other name": Way("misnamed", {**CA, "check_hostname": "false"}, {}),
    "SASL without TLS": Way("open", {}, _user("PLAIN", allow_plaintext=True)),
}


def _token(seconds: int) -> str:
    """An unsecured JSON web token, which Kafka takes by default: good for tests alone."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + seconds})
    return ".".join(
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts
    ) + "."  # fmt: skip


def _topics() -> Topics:
    return Topics.with_prefix(f"t{uuid.uuid4().hex[:12]}.")


async def _read(connection: Connection, topic: str) -> list[bytes]:
    reader = Reader(connection, [topic], from_beginning=True, follow=False)
    await reader.start()
    found: list[bytes] = []
    try:
        while (records := await reader.read()) is not None:
            found += [record.value for record in records]
    finally:
        await reader.stop()
    return found


def _round_trip(connection: Connection) -> None:
    """Create the topics, publish rows, read them back and take the account of them."""
    topics = _topics()
    assert len(asyncio.run(create_topics(connection, topics)).created) == len(topics.model_dump())
    with Publisher(connection, topic=topics.rows, model="m") as publisher:
        for index in range(50):
            publisher.publish({"x": index}, 0.5, id=index)
        assert publisher.flush(10.0)
    values = asyncio.run(_read(connection, topics.rows))
    rows = [row for value in values for _, _, row in decode_json_rows(value, model="m").rows]
    assert sorted(row.features["x"] for row in rows) == list(range(50))
    assert asyncio.run(read_accounting(connection, topics)).lag == len(values)


@pytest.mark.parametrize("name", WAYS)
def test_rows_go_in_and_out(secure: SecureKafka, name: str) -> None:
    _round_trip(WAYS[name].connection(secure))


def test_rows_go_in_and_out_with_a_token(secure: SecureKafka, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(_token(600))
    sasl = {"mechanism": "OAUTHBEARER", "token_file": tmp_path / "token"}
    _round_trip(Way("sasl", CA, sasl).connection(secure))


@pytest.fixture
def token_endpoint() -> Iterator[tuple[str, list[str]]]:
    """The address of an OAuth endpoint, and what it was asked with."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["content-length"])).decode())
            answer = {"access_token": _token(600), "token_type": "bearer", "expires_in": 600}
            data = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/token", asked
    server.shutdown()
    server.server_close()


def test_rows_go_in_and_out_with_tokens_from_an_endpoint(
    secure: SecureKafka, token_endpoint: tuple[str, list[str]]
) -> None:
    url, asked = token_endpoint
    sasl = {
        "mechanism": "OAUTHBEARER",
        "token_url": url,
        "client_id": "me",
        "client_secret": PASSWORD,
        "scope": "kafka",
    }
    _round_trip(Way("sasl", CA, sasl).connection(secure))
    assert asked == ["grant_type=client_credentials&scope=kafka"], "one token for all clients"


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (Way("sasl", CA, _user("PLAIN", "wrong-password")), "it refuses user 'alice' or the password"),
        (Way("sasl", CA, _user(SCRAM[0], "wrong-password")), "it refuses user 'alice' or the password"),
        (
            Way("open", {}, _user(SCRAM[1], allow_plaintext=True)),
            "it does not offer SCRAM-SHA-512: connection.sasl.mechanism can be PLAIN",
        ),
        (
            Way("plain", {}, _user("PLAIN", allow_plaintext=True)),
            "it authenticates nobody at this port: leave connection.sasl away",
        ),
        (Way("sasl", CA, {}), "it closes the connection of a client that does not authenticate"),
        (Way("open", {}, {}), "it closes the connection of a client that does not authenticate"),
        (
            Way("sasl", {"ca_file": "other-ca.pem"}, _user("PLAIN")),
            "its certificate is not trusted (unable to get local issuer certificate): name the CA",
        ),
        (Way("sasl", {"enabled": "true"}, _user("PLAIN")), "its certificate is not trusted"),
        (Way("misnamed", CA, {}), "its certificate is not for '127.0.0.1'"),
        (Way("sasl", {}, {}), "it speaks TLS, and this connection does not: set connection.tls"),
        (
            Way("sasl", {}, _user("PLAIN", allow_plaintext=True)),
            "it speaks TLS, and this connection does not: set connection.tls",
        ),
        (Way("plain", CA, {}), "it does not speak TLS, and connection.tls is on"),
        (Way("open", CA, _user("PLAIN")), "it does not speak TLS, and connection.tls is on"),
        (Way("mutual", CA, {}), "it asks for a client certificate: set connection.tls.cert_file"),
        (
            Way("mutual", {**CLIENT, "cert_file": "stranger.crt", "key_file": "stranger.key"}, {}),
            "it refuses the client certificate",
        ),
    ],
)  # fmt: skip
def test_a_client_that_is_not_let_in_is_told_why(secure: SecureKafka, way: Way, said: str) -> None:
    connection = way.connection(secure)
    started = time.monotonic()
    with pytest.raises(BrokerError) as caught:
        asyncio.run(check_topics(connection, Topics()))
    assert time.monotonic() - started < 3.0
    message = str(caught.value)
    assert message.startswith(f"cannot connect to the broker at {connection.bootstrap} ({said}")
    assert "\n" not in message
    _no_secret(message)


def test_a_token_that_is_not_taken(secure: SecureKafka, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(_token(-60))
    sasl = {"mechanism": "OAUTHBEARER", "token_file": tmp_path / "token"}
    with pytest.raises(BrokerError, match=r"it refuses the token: .*invalid_token"):
        asyncio.run(check_topics(Way("sasl", CA, sasl).connection(secure), Topics()))


@pytest.mark.parametrize("command", ["stream", "tail"])
@pytest.mark.parametrize(
    "way",
    [
        Way("sasl", CA, _user(SCRAM[0], "wrong-password")),
        Way("sasl", {"ca_file": "other-ca.pem"}, _user("PLAIN")),
        Way("sasl", {}, {}),
    ],
    ids=["wrong password", "wrong CA", "plaintext to TLS"],
)
def test_a_command_that_is_not_let_in_ends_with_one_line(
    secure: SecureKafka, way: Way, command: str
) -> None:
    started = time.monotonic()
    done = run(command, ATTRIBUTARY_LOG_LEVEL="info", **way.variables(secure))
    assert time.monotonic() - started < _REFUSED_SECONDS
    assert error_line(done).startswith("error: cannot connect to the broker at ")
    _no_secret(done.stdout + done.stderr)


def test_a_publisher_that_is_not_let_in_says_so_once(
    secure: SecureKafka, caplog: pytest.LogCaptureFixture
) -> None:
    connection = Way("sasl", CA, _user("PLAIN", "wrong-password")).connection(secure)
    with caplog.at_level(logging.DEBUG):
        publisher = Publisher(connection, model="m")
        publisher.publish({"x": 1}, 1.0)
        wait_until(lambda: "cannot publish" in caplog.text, 10.0)
        time.sleep(0.5)
        publisher.close(0.1)
    lines = [r.message for r in caplog.records if "cannot publish" in r.message]
    assert len(lines) == 1
    assert "it refuses user 'alice' or the password" in lines[0]
    _no_secret(caplog.text)


def test_a_subscription_that_is_not_let_in_says_why(secure: SecureKafka) -> None:
    connection = Way("sasl", CA, _user("PLAIN", "wrong-password")).connection(secure)
    with pytest.raises(BrokerError, match="it refuses user 'alice' or the password"):
        next(iter(subscribe(connection)))


AT_EXIT = """
import sys
from attributary import Publisher
from attributary.schemas.connection import Connection

connection = Connection.model_validate_json(sys.stdin.read())
publisher = Publisher(connection, topic=sys.argv[1], model="m")
for index in range(100):
    publisher.publish({"x": index}, 1.0, id=index)
"""


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM[0], "OAUTHBEARER"])
def test_rows_are_sent_by_a_process_that_ends_at_once(
    secure: SecureKafka, tmp_path: Path, mechanism: str
) -> None:
    """The interpreter starts no threads any more when the publisher authenticates."""
    if mechanism == "OAUTHBEARER":
        (tmp_path / "token").write_text(_token(600))
        sasl = {"mechanism": mechanism, "token_file": str(tmp_path / "token")}
    else:
        sasl = _user(mechanism)
    topics = _topics()
    connection = Way("sasl", CA, sasl).connection(secure)
    asyncio.run(create_topics(connection, topics))
    given = {
        "bootstrap": connection.bootstrap,
        "tls": {"ca_file": str(secure.ca)},
        "sasl": sasl,
    }
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT, topics.rows],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=30,
        env=environment(),
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    values = asyncio.run(_read(connection, topics.rows))
    rows = [row for value in values for _, _, row in decode_json_rows(value, model="m").rows]
    assert sorted(row.features["x"] for row in rows) == list(range(100))


def test_the_whole_worker_over_tls_and_scram(secure: SecureKafka, tmp_path: Path) -> None:
    """Everything by the command line, the log at its most talkative, and no secret in any of it."""
    variables = {
        **WAYS["SCRAM-SHA-512"].variables(secure),
        "ATTRIBUTARY_TOPIC_PREFIX": f"t{uuid.uuid4().hex[:12]}.",
        "ATTRIBUTARY_LOG_LEVEL": "debug",
    }
    del variables["ATTRIBUTARY_CONNECTION__SASL__PASSWORD"]
    (tmp_path / "password").write_text(PASSWORD + "\n")
    variables["ATTRIBUTARY_CONNECTION__SASL__PASSWORD_FILE"] = str(tmp_path / "password")
    rows = tmp_path / "rows.csv"
    lines = [f"{i % 17},{(i * 7) % 13},{(i % 17) * 2.0}" for i in range(2000)]
    rows.write_text("\n".join(["a,b,score", *lines]))
    said = []
    done = run("topics", "create", **variables)
    assert (done.returncode, done.stderr) == (0, "")
    worker = Running("stream", **variables)
    try:
        worker.wait_for("ready broker")
        done = run("publish", str(rows), "--model", "m", "--outputs", "score", **variables)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout + done.stderr)

        def counted() -> bool:
            shown = run(
                "tail", "--window", "lifetime", "--no-follow", "--json", **variables
            )  # fmt: skip
            said.append(shown.stdout + shown.stderr)
            found = [json.loads(line) for line in shown.stdout.splitlines()]
            return any(message["accounting"]["rows"] == 2000 for message in found)

        wait_until(counted, 30.0, lambda: worker.output[-3000:])
        worker.process.terminate()
        assert worker.wait(10.0) == 0
    finally:
        worker.close()
    assert "SaslAuthenticate" not in worker.output
    assert "Authenticated as alice via SCRAM-SHA-512" in worker.output
    for text in (worker.output, *said):
        _no_secret(text)


def _no_secret(text: str) -> None:
    for secret in SECRETS:
        assert secret not in text
        assert base64.b64encode(secret.encode()).decode() not in text
