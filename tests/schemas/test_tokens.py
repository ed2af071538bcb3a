"""OAUTHBEARER tokens: from a file as it changes, and from an endpoint with expiry and renewal."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus

import pytest
import trustme

from attributary.schemas.errors import ConfigurationError
from attributary.schemas.sasl import Sasl
from attributary.schemas.tokens import ClientCredentials, FileToken, TokenError, token_provider

ID, SECRET = "me: and you", "hunter2/%?:-never-shown"


class Endpoint:
    """An OAuth token endpoint: gives what ``answer`` says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, list[str]], str]] = []
        self.answer: Callable[[int], tuple[int, Any]] = lambda count: (
            200,
            {"access_token": f"token-{count}", "token_type": "Bearer", "expires_in": 3600},
        )
        self.headers: dict[str, str] = {}
        self.delay = 0.0
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                endpoint.asked.append((parse_qs(body), self.headers["authorization"]))
                time.sleep(endpoint.delay)
                status, answer = endpoint.answer(len(endpoint.asked))
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                for name, value in endpoint.headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}/token?tenant=private"

    def sasl(self, **more: Any) -> Sasl:
        given = {"token_url": self.url, "client_id": ID, "client_secret": SECRET, **more}
        return Sasl(mechanism="OAUTHBEARER", **given)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    found = Endpoint()
    found.thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_the_endpoint_is_asked_as_the_standard_says(endpoint: Endpoint) -> None:
    assert ClientCredentials(endpoint.sasl(scope="kafka read")).current() == "token-1"
    ((fields, authorization),) = endpoint.asked
    assert fields == {"grant_type": ["client_credentials"], "scope": ["kafka read"]}
    scheme, _, pair = authorization.partition(" ")
    assert scheme == "Basic"
    name, _, secret = base64.b64decode(pair).decode().partition(":")
    assert (unquote_plus(name), unquote_plus(secret)) == (ID, SECRET)


def test_a_token_serves_until_most_of_its_lifetime_is_over(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("attributary.schemas.tokens.time.time", lambda: now[0])
    tokens = ClientCredentials(endpoint.sasl())
    seen = []
    for moment in (1000, 3800, 3881, 3882):  # renewed after 0.8 of 3,600 s
        now[0] = moment
        seen.append(tokens.current())
    assert seen == ["token-1", "token-1", "token-2", "token-2"]


def test_an_old_token_serves_to_its_end_while_the_endpoint_fails(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr("attributary.schemas.tokens.time.time", lambda: now[0])
    tokens = ClientCredentials(endpoint.sasl())
    assert tokens.current() == "token-1"
    working, endpoint.answer = endpoint.answer, lambda _: (503, {})
    now[0] = 3599
    assert tokens.current() == "token-1"
    now[0] = 3601
    with pytest.raises(TokenError, match="answered 503"):
        tokens.current()
    endpoint.answer = working
    now[0] = 3603
    assert tokens.current() == "token-4"


def test_a_failing_endpoint_is_not_asked_for_every_connection(endpoint: Endpoint) -> None:
    endpoint.answer = lambda _: (401, {"error": "invalid_client"})
    tokens = ClientCredentials(endpoint.sasl())
    for _ in range(20):
        with pytest.raises(TokenError):
            tokens.current()
    assert len(endpoint.asked) == 1


async def test_many_clients_share_one_request_and_the_loop_goes_on(endpoint: Endpoint) -> None:
    endpoint.delay = 0.3
    provider = token_provider(endpoint.sasl())
    assert token_provider(endpoint.sasl()) is provider
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    tokens = await asyncio.gather(*(provider.token() for _ in range(5)))
    ticking.cancel()
    assert set(tokens) == {"token-1"}
    assert len(endpoint.asked) == 1
    assert ticks >= 10


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (401, {"error": "invalid_client", "error_description": SECRET}, "answered 401 (invalid_client)"),
        (400, {"error": f"no {SECRET}"}, "answered 400"),
        (500, b"<html>", "answered 500"),
        (200, b"<html>", "gave no JSON"),
        (200, [1], "gave no JSON object"),
        (200, {}, "gave no access_token"),
        (200, {"access_token": "a\r\nb"}, "gave no access_token"),
        (200, {"access_token": 7}, "gave no access_token"),
        (200, {"access_token": "a", "token_type": "mac"}, "gave no bearer token"),
    ],
)  # fmt: skip
def test_an_endpoint_that_gives_no_token(
    endpoint: Endpoint, status: int, answer: Any, said: str
) -> None:
    endpoint.answer = lambda _: (status, answer)
    with pytest.raises(TokenError) as caught:
        ClientCredentials(endpoint.sasl()).current()
    message = str(caught.value)
    assert said in message
    assert "tenant" not in message
    for part in (SECRET, base64.b64encode(SECRET.encode()).decode()):
        assert part not in message


def test_the_secret_follows_no_redirect(endpoint: Endpoint) -> None:
    other = Endpoint()
    other.thread.start()
    try:
        endpoint.answer = lambda _: (302, {})
        endpoint.headers = {"location": other.url}
        with pytest.raises(TokenError, match="answered 302"):
            ClientCredentials(endpoint.sasl()).current()
        assert other.asked == []
    finally:
        other.server.shutdown()
        other.server.server_close()


def test_the_secret_takes_no_proxy_on_loopback(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert ClientCredentials(endpoint.sasl()).current() == "token-1"


def test_over_https_only_the_named_authority_is_trusted(endpoint: Endpoint, tmp_path: Path) -> None:
    import ssl

    authority, other = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    endpoint.server.socket = context.wrap_socket(endpoint.server.socket, server_side=True)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    other.cert_pem.write_to_path(str(tmp_path / "other.pem"))
    url = endpoint.url.replace("http:", "https:")
    trusting = endpoint.sasl(token_url=url, token_ca_file=tmp_path / "ca.pem")
    assert ClientCredentials(trusting).current() == "token-1"
    for sasl in (
        endpoint.sasl(token_url=url),
        endpoint.sasl(token_url=url, token_ca_file=tmp_path / "other.pem"),
    ):
        with pytest.raises(TokenError, match="CERTIFICATE_VERIFY_FAILED"):
            ClientCredentials(sasl).current()


def test_nobody_at_the_endpoint() -> None:
    sasl = Sasl(
        mechanism="OAUTHBEARER", token_url="http://127.0.0.1:9/", client_id="a", client_secret="b"
    )  # fmt: skip
    with pytest.raises(TokenError, match="Connection refused"):
        ClientCredentials(sasl).current()


def test_what_the_endpoint_needs_is_checked_before_anything_connects(tmp_path: Path) -> None:
    given = {"mechanism": "OAUTHBEARER", "token_url": "https://x/", "client_id": "a"}
    with pytest.raises(ConfigurationError, match=r"client_secret_file .*No such file"):
        Sasl(**given, client_secret_file=tmp_path / "none").client_arguments()
    with pytest.raises(ConfigurationError, match=r"token_ca_file .*No such file"):
        Sasl(**given, client_secret="b", token_ca_file=tmp_path / "none").client_arguments()


async def test_a_tokens_file_is_read_as_it_changes(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    tokens = FileToken(file)
    assert await tokens.token() == "first"
    file.write_text("second")
    assert await tokens.token() == "second"
    file.write_text("two words")
    with pytest.raises(TokenError, match="expected one token") as caught:
        await tokens.token()
    assert "two words" not in str(caught.value)
    file.unlink()
    with pytest.raises(TokenError, match="No such file"):
        await tokens.token()
    with pytest.raises(ConfigurationError, match="No such file"):
        tokens.check()
