"""KServe's inference logger: a CloudEvent for the request and one for the response, with one id."""

from __future__ import annotations

from attributary.schemas.adapters.bodies import read_body
from attributary.schemas.adapters.cloudevents import CloudEvent, read_event
from attributary.schemas.adapters.exchanges import split_body
from attributary.schemas.adapters.inference import Facts, Half, Part, Skipped
from attributary.schemas.adapters.message import ForeignMessage
from attributary.schemas.errors import Reason, RejectedError

_REQUEST, _RESPONSE = ".inference.request", ".inference.response"
_PREDICTOR = "predictor"


def read_kserve(message: ForeignMessage) -> list[Part]:
    """Return the half that a message is; events of other types and of other components are skipped."""
    return [_half(read_event(message), message)]


def _half(event: CloudEvent, message: ForeignMessage) -> Part:
    kind = event.get("type") or ""
    response = kind.endswith(_RESPONSE)
    if not response and not kind.endswith(_REQUEST):
        return Skipped("other_event")
    component = event.get("component")
    if component is not None and component != _PREDICTOR:
        return Skipped("other_component")
    name = event.get("id")
    if name is None:
        raise RejectedError(Reason.WRONG_TYPE, "the CloudEvent has no id, so nothing to pair it by")
    data, tail = split_body(event.data, message.header("inference-header-content-length"))
    body = read_body(data, tail=tail)
    service = event.get("inferenceservicename")
    pair = (event.get("namespace") or "", service or "", event.get("endpoint") or "", name)
    facts = Facts(id=name, model=service or body.model, time=event.get("time"))
    side = body.response if response else body.request
    if side is None and not body.failed:
        raise RejectedError(
            Reason.WRONG_TYPE,
            f"the event is called a {'response' if response else 'request'}, its body is the other",
        )
    return Half(pair, response, side, facts)
