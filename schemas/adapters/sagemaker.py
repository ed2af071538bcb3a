"""SageMaker data capture: a JSON line with an endpoint's request and response, as CSV, JSON or base64."""

from __future__ import annotations

import base64
import binascii
import csv
import io
from typing import Any

from attributary.schemas.adapters.bodies import V1, V2, read_body, text_of
from attributary.schemas.adapters.inference import Facts, Inference, Part, Skipped
from attributary.schemas.adapters.message import ForeignMessage, parse_json, parse_object
from attributary.schemas.adapters.side import Side, from_matrix, from_rows
from attributary.schemas.errors import Reason, RejectedError

_LINES = ("application/jsonlines", "application/x-jsonlines", "application/jsonl")


def read_sagemaker(message: ForeignMessage) -> list[Part]:
    """Return the inference of a capture line; lines with one side alone are skipped."""
    line = parse_object(message.value)
    captured = line.get("captureData")
    if not isinstance(captured, dict):
        raise RejectedError(Reason.WRONG_TYPE, "no 'captureData': not a line of data capture")
    asked, answered = captured.get("endpointInput"), captured.get("endpointOutput")
    if asked is None or answered is None:
        return [Skipped("half_captured")]
    metadata = line.get("eventMetadata")
    about = metadata if isinstance(metadata, dict) else {}
    request = _side(asked, "endpointInput", None)
    response = _side(answered, "endpointOutput", len(request.rows))
    time = about.get("inferenceTime")
    facts = Facts(
        id=text_of(about.get("inferenceId")) or text_of(about.get("eventId")),
        time=time if isinstance(time, (str, int, float)) else None,
    )
    return [Inference(request, response, facts)]


def _side(captured: Any, what: str, rows: int | None) -> Side:
    """Return one side; ``rows``: how many the request had, None where this is it."""
    if not isinstance(captured, dict) or not isinstance(captured.get("data"), str):
        raise RejectedError(Reason.WRONG_TYPE, f"{what}: expected an object with 'data' as text")
    text = captured["data"]
    if str(captured.get("encoding", "")).upper() == "BASE64":
        try:
            text = base64.b64decode(text, validate=True).decode()
        except (ValueError, binascii.Error):
            raise RejectedError(
                Reason.NOT_DECODABLE, f"{what}: its data is no base64 of text"
            ) from None
    content = str(captured.get("observedContentType") or "").partition(";")[0].strip().lower()
    if content in _LINES:
        return _values([parse_json(line, what) for line in text.splitlines() if line], what, rows)
    if "json" in content or (not content.endswith("csv") and text.lstrip()[:1] in ("{", "[")):
        return _values(parse_json(text, what), what, rows)
    return _table(text, what, rows)


def _table(text: str, what: str, rows: int | None) -> Side:
    try:
        lines = [line for line in csv.reader(io.StringIO(text), strict=True) if line]
    except csv.Error as error:
        raise RejectedError(Reason.NOT_DECODABLE, f"{what}: not CSV: {error}") from None
    values = [[_cell(cell) for cell in line] for line in lines]
    if len(values) == 1 and rows is not None and 1 < rows == len(values[0]):
        values = [[value] for value in values[0]]  # a batch answered in one line
    return from_matrix(values, what)


def _cell(text: str) -> float | str | None:
    stripped = text.strip()
    if not stripped:
        return None
    try:
        return float(stripped)
    except ValueError:
        return stripped


def _values(found: Any, what: str, rows: int | None) -> Side:
    if isinstance(found, dict):
        if any(name in found for name in ("instances", "inputs", "predictions", "outputs")):
            body = read_body(found, (V2, V1))
            side = body.request if rows is None else body.response
            if side is not None:
                return side
        return from_rows([found], what)
    if not isinstance(found, list):
        found = [found]
    if (
        found
        and not any(isinstance(row, (list, dict)) for row in found)
        and (rows is None or rows != len(found))
    ):
        found = [found]  # a bare list is one row, unless it answers as many
    return from_rows(found, what)
