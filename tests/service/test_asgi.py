"""The ASGI middleware: what it publishes of requests and answers, and that both pass untouched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from outbox_rows import take_rows

from attributary import PredictionMiddleware, Publisher
from attributary.service.embedded import free_port


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    made = Publisher(f"127.0.0.1:{free_port()}", model="m", feature_names=["a", "b"])
    yield made
    made.close(0.0)


class App:
    """Answers with what it was told, in parts, after reading the request."""

    def __init__(self, answer: bytes, status: int = 200, headers: Any = (), parts: int = 2) -> None:
        self.answer, self.status, self.headers, self.parts = answer, status, headers, parts
        self.read = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        self.read = b""
        more = scope["type"] == "http"
        while more:
            message = await receive()
            self.read += message["body"]
            more = message.get("more_body", False)
        if self.answer == b"raise":
            raise RuntimeError("the app's own")
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        size = max(1, len(self.answer) // self.parts)
        for at in range(0, len(self.answer), size):
            await send(
                {"type": "http.response.body", "body": self.answer[at : at + size],
                 "more_body": True}
            )  # fmt: skip
        await send({"type": "http.response.body", "body": b""})


def ask(app: Any, body: Any, path: str = "/predict", method: str = "POST", **scope: Any) -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    half = len(data) // 2
    incoming = [
        {"type": "http.request", "body": data[:half], "more_body": True},
        {"type": "http.request", "body": data[half:], "more_body": False},
    ]
    sent: list[Any] = []

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    made = {"type": "http", "method": method, "path": path, "headers": [], **scope}
    asyncio.run(app(made, receive, send))
    return b"".join(message.get("body", b"") for message in sent)


def test_one_row_and_its_answer(publisher: Publisher) -> None:
    app = App(b'{"score": 0.75, "label": "yes"}')
    watched = PredictionMiddleware(
        app, publisher=publisher, paths=["/predict"], features="input.row", outputs="score"
    )
    body = {"input": {"row": {"a": 1.5, "plan": "pro"}}, "user": 7}
    assert ask(watched, body, headers=[(b"X-Request-Id", b"r-1")]) == app.answer
    assert json.loads(app.read) == body
    (row,) = take_rows(publisher)
    assert (row["features"], row["outputs"], row["id"]) == (body["input"]["row"], 0.75, "r-1")


@pytest.mark.parametrize(
    "body", [[{"a": 1, "b": 2}, {"a": 3}], [[1, 2], [3, None]], {"a": [1, 3], "b": [2, None]}]
)
def test_many_rows(publisher: Publisher, body: Any) -> None:
    watched = PredictionMiddleware(
        App(b'{"p": [0.25, 0.5]}'), publisher=publisher, paths="/predict", outputs=lambda a: a["p"]
    )
    ask(watched, body, headers=[(b"x-request-id", b"of both")])
    found = take_rows(publisher)
    assert [row["outputs"] for row in found] == [0.25, 0.5]
    assert [row["features"].get("b") for row in found] == [2, None]
    assert not any("id" in row for row in found)


@pytest.mark.parametrize(
    "asked",
    [
        {"path": "/other"},
        {"method": "GET"},
        {"type": "websocket"},
        {"app": App(b'{"score": 1}', status=422)},
        {"app": App(b'{"score": 1}', status=307)},
    ],
)
def test_other_requests_pass(publisher: Publisher, asked: dict[str, Any]) -> None:
    app = asked.pop("app", App(b'{"score": 1}'))
    watched = PredictionMiddleware(app, publisher=publisher, paths=["/predict"], outputs="score")
    assert ask(watched, {"a": 1}, **asked) == app.answer
    assert (publisher.pending, publisher.invalid) == (0, 0)


@pytest.mark.parametrize(
    ("body", "app", "scope"),
    [
        (b"not json", App(b'{"score": 1}'), {}),
        ({"a": 1}, App(b"<html>"), {}),
        ({"a": 1}, App(b'{"other": 1}'), {}),
        ({"a": 1}, App(b'{"score": "high"}'), {}),
        ({"a": "x" * 300}, App(b'{"score": 1}'), {}),
        ({"a": 1}, App(b'{"score": 1}' + b" " * 300), {}),
        ({"a": 1}, App(b'{"score": 1}', headers=[(b"content-encoding", b"gzip")]), {}),
        ({"a": 1}, App(b'{"score": 1}'), {"headers": [(b"Content-Encoding", b"br")]}),
        (b"[" * 100, App(b'{"score": 1}'), {}),
    ],
)
def test_what_cannot_be_read_is_counted_and_passes(
    publisher: Publisher, body: Any, app: App, scope: dict[str, Any]
) -> None:
    watched = PredictionMiddleware(
        app, publisher=publisher, paths=["/predict"], outputs="score", max_body_bytes=200
    )
    assert ask(watched, body, **scope) == app.answer
    assert (publisher.pending, publisher.invalid) == (0, 1)


def test_what_the_app_raises_is_raised(publisher: Publisher) -> None:
    watched = PredictionMiddleware(App(b"raise"), publisher=publisher, paths=["/predict"])
    with pytest.raises(RuntimeError, match="own"):
        ask(watched, {"a": 1})
    assert (publisher.pending, publisher.invalid) == (0, 0)


def test_the_answer_has_gone_before_the_row_is_made(publisher: Publisher) -> None:
    pending: list[int] = []

    class Sent(App):
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async def noted(message: Any) -> None:
                pending.append(publisher.pending)
                await send(message)

            await watched(scope, receive, noted)

    watched = PredictionMiddleware(
        App(b'{"s": 1}'), publisher=publisher, paths=["/predict"], outputs="s"
    )
    ask(Sent(b""), {"a": 1})
    assert pending
    assert set(pending) == {0}
    assert publisher.pending == 1


def test_a_service_that_shuts_down_flushes(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[float] = []

    async def aflush(timeout: float) -> bool:
        flushed.append(timeout)
        return True

    monkeypatch.setattr(publisher, "aflush", aflush)
    watched = PredictionMiddleware(
        App(b""), publisher=publisher, paths=["/predict"], flush_seconds=1.5
    )
    ask(watched, {}, type="lifespan")
    assert flushed == [1.5]


def test_fastapi(publisher: Publisher) -> None:
    fastapi = pytest.importorskip("fastapi")
    from pydantic import BaseModel

    app = fastapi.FastAPI()
    app.add_middleware(
        PredictionMiddleware, publisher=publisher, paths=["/predict"], outputs="score"
    )

    class Row(BaseModel):
        a: float
        plan: str

    async def predict(row: Row) -> dict[str, float]:
        return {"score": row.a * 2}

    predict.__annotations__ = {"row": Row, "return": dict[str, float]}
    app.post("/predict")(predict)
    app.post("/watched")(publisher.watch(predict, outputs=lambda answer: answer["score"]))
    headers = [(b"content-type", b"application/json")]
    for path in ("/predict", "/watched"):
        scope = {"headers": headers, "query_string": b"", "root_path": "", "http_version": "1.1",
                 "scheme": "http", "server": ("here", 80), "client": ("there", 1)}  # fmt: skip
        assert json.loads(ask(app, {"a": 1.5, "plan": "pro"}, path, **scope)) == {"score": 3.0}
        (row,) = take_rows(publisher)
        assert (row["features"], row["outputs"]) == ({"a": 1.5, "plan": "pro"}, 3.0)
