"""Requests and responses as servers take and give them: one a message, or both in one.

Both in one: ``{"request": …, "response": …}``, the two as JSON or as text that is JSON, beside ``id``,
``model`` and ``time``; or one object with the fields of both. One a message: paired by the id in the body,
in a header (``x-request-id``, ``request-id``, ``ce_id``) or in the message's key.
"""

from __future__ import annotations

from typing import Any

from attributary.schemas.adapters.bodies import V2, Body, read_body, text_of
from attributary.schemas.adapters.inference import Facts, Half, Inference, Part, Skipped
from attributary.schemas.adapters.message import ForeignMessage, parse_json, parse_object
from attributary.schemas.errors import Reason, RejectedError

_ID_HEADERS = ("x-request-id", "request-id", "ce_id")
_LENGTH_HEADER = "inference-header-content-length"


def read_exchange(message: ForeignMessage, kind: str) -> list[Part]:
    """Return what a message of one kind of body holds."""
    body, tail = split_body(message.value, message.header(_LENGTH_HEADER) if kind == V2 else None)
    if isinstance(body, dict) and "request" in body and "response" in body:
        return [_wrapped(body, kind)]
    found = read_body(body, (kind,), tail)
    if found.request is not None and found.response is not None:
        return [Inference(found.request, found.response, _facts(body, found))]
    pair = found.id or message.header(*_ID_HEADERS)
    pair = pair or (message.key or b"").decode("utf-8", "replace")
    if not pair:
        raise RejectedError(
            Reason.WRONG_TYPE,
            "half of an inference without an id to pair it by: no 'id' in the body, no header "
            f"{_ID_HEADERS[0]}, no key",
        )
    facts = Facts(id=pair, model=found.model)
    response = found.request is None
    return [Half((pair,), response, found.response if response else found.request, facts)]


def split_body(data: bytes, json_bytes: str | None) -> tuple[Any, bytes]:
    """Return the JSON of a body, and the binary tensors that follow it.

    ``json_bytes``: the header ``Inference-Header-Content-Length``, None where all is JSON.
    """
    if json_bytes is None:
        return parse_json(data, "the body"), b""
    if not json_bytes.strip().isdecimal() or len(json_bytes) > 12 or int(json_bytes) > len(data):
        raise RejectedError(
            Reason.NOT_DECODABLE,
            f"{_LENGTH_HEADER} is {json_bytes!r:.40} for {len(data)} bytes",
        )
    size = int(json_bytes)
    return parse_json(data[:size], "the body's JSON"), data[size:]


def read_both(request: Any, response: Any, kind: str, facts: Facts) -> Part:
    """Return the inference of two bodies, each JSON or text that is JSON."""
    answer = read_body(_parsed(response, "response"), (kind,))
    if answer.failed:
        return Skipped("failed")
    asked = read_body(_parsed(request, "request"), (kind,))
    if asked.request is None or answer.response is None:
        raise RejectedError(
            Reason.WRONG_TYPE, "'request' holds no request, or 'response' no response"
        )
    return Inference(
        asked.request,
        answer.response,
        Facts(facts.id or asked.id, facts.model or answer.model, facts.time, facts.weight),
    )


def read_inference_table(message: ForeignMessage) -> list[Part]:
    """Return the inference of a row of a Databricks inference table: MLflow's bodies as text."""
    row = parse_object(message.value)
    status = row.get("status_code")
    if status is not None and status != 200 and text_of(status) != "200":
        return [Skipped("failed")]
    time = row.get("timestamp_ms")
    if isinstance(time, (int, float)) and not isinstance(time, bool):
        time = time / 1000
    else:
        time = row.get("request_time")
    facts = Facts(
        id=text_of(row.get("databricks_request_id")) or text_of(row.get("client_request_id")),
        time=time if isinstance(time, (str, int, float)) else None,
    )
    return [read_both(row.get("request"), row.get("response"), "mlflow", facts)]


def _wrapped(body: dict[str, Any], kind: str) -> Part:
    return read_both(body["request"], body["response"], kind, _facts(body, None))


def _facts(body: dict[str, Any], found: Body | None) -> Facts:
    time = body.get("time", body.get("timestamp"))
    return Facts(
        id=text_of(body.get("id")),
        model=text_of(body.get("model")) or (None if found is None else found.model),
        time=time if isinstance(time, (str, int, float)) else None,
    )


def _parsed(body: Any, what: str) -> Any:
    return parse_json(body, what) if isinstance(body, str) else body
