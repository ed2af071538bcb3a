"""Seldon Core 2: the topics ``seldon.<namespace>.model.<name>.inputs`` and ``.outputs`` (or ``pipeline``).

Values are V2 protocol messages, as protobuf or as JSON; the message key is the request's id.
"""

from __future__ import annotations

import re

from attributary.schemas.adapters.bodies import V2, read_body
from attributary.schemas.adapters.inference import Facts, Half, Part, Skipped
from attributary.schemas.adapters.message import ForeignMessage, parse_json
from attributary.schemas.adapters.protobuf import read_infer
from attributary.schemas.adapters.side import Side
from attributary.schemas.errors import Reason, RejectedError

_TOPIC = re.compile(r"(?:.*\.)?(?:model|pipeline)\.([^.]+)\.(inputs|outputs)")
_ERROR_HEADER = "seldon-pipeline-errors"


def read_seldon(message: ForeignMessage) -> list[Part]:
    """Return the half that a message is; what it is of, and which half, stands in its topic's name."""
    found = _TOPIC.fullmatch(message.topic)
    if found is None:
        raise RejectedError(
            Reason.WRONG_TYPE,
            f"expected a topic such as seldon.default.model.NAME.inputs, got {message.topic!r:.80}",
        )
    if _ERROR_HEADER in message.headers:
        return [Skipped("failed")]
    model, response = found[1], found[2] == "outputs"
    side, own = _read(message.value, response=response)
    key = (message.key or b"").decode("utf-8", "replace") or message.header("x-request-id") or own
    if not key:
        raise RejectedError(Reason.WRONG_TYPE, "the message has neither a key nor an id to pair by")
    return [Half((model, key), response, side, Facts(id=key, model=model))]


def _read(value: bytes, *, response: bool) -> tuple[Side, str | None]:
    if value.lstrip()[:1] == b"{":
        body = read_body(parse_json(value), (V2,))
        side, own = (body.response if response else body.request), body.id
    else:
        if not value:
            raise RejectedError(Reason.EMPTY, "the message is empty")
        infer = read_infer(value, response=response)
        side, own = infer.side, infer.id
    if side is None:
        raise RejectedError(
            Reason.EMPTY, f"the message has no {'outputs' if response else 'inputs'}"
        )
    return side, own
