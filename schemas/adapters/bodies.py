"""Bodies of requests and responses: V1 (TensorFlow Serving), V2 (Open Inference Protocol), MLflow."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from attributary.schemas.adapters.side import Side, from_columns, from_rows, from_split
from attributary.schemas.adapters.tensors import from_json
from attributary.schemas.errors import Reason, RejectedError

V1, V2, MLFLOW = "v1", "v2", "mlflow"
ANY = (V1, V2, MLFLOW)
_FIELDS = {
    V1: (("instances", "inputs"), ("predictions", "outputs")),
    V2: (("inputs",), ("outputs",)),
    MLFLOW: (("dataframe_split", "dataframe_records", "instances", "inputs"), ("predictions",)),
}


class Body(NamedTuple):
    """What a body holds; ``failed``: it is an error of the model's."""

    request: Side | None
    response: Side | None
    failed: bool = False
    id: str | None = None
    model: str | None = None


def read_body(body: Any, kinds: Collection[str] = ANY, tail: bytes = b"") -> Body:
    """Return the request or the response in a JSON value, or both; RejectedError: there is neither.

    ``tail`` is what follows the JSON in a V2 body with binary tensors.
    """
    if not isinstance(body, dict):
        raise RejectedError(
            Reason.WRONG_TYPE, f"expected a JSON object as body, got {type(body).__name__}"
        )
    request = _request(body, kinds, tail)
    response = _response(body, kinds, b"" if request is not None else tail)
    failed = response is None and request is None and ("error" in body or "error_code" in body)
    if request is None and response is None and not failed:
        wanted = [name for kind in kinds for names in _FIELDS[kind] for name in names]
        raise RejectedError(
            Reason.WRONG_TYPE,
            f"the body has none of {', '.join(dict.fromkeys(wanted))}; it has "
            f"{', '.join(map(str, list(body)[:8])) or 'nothing'!s:.200}",
        )
    return Body(request, response, failed, text_of(body.get("id")), text_of(body.get("model_name")))


def text_of(value: Any) -> str | None:
    """Return a text or a whole number as text; None for anything else, and for nothing."""
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _request(body: dict[str, Any], kinds: Collection[str], tail: bytes) -> Side | None:
    inputs = body.get("inputs")
    if V2 in kinds and _are_tensors(inputs):
        return from_json(inputs, tail, "inputs")
    if MLFLOW in kinds:
        if (split := body.get("dataframe_split")) is not None:
            if not isinstance(split, dict):
                raise RejectedError(Reason.WRONG_TYPE, "dataframe_split must be an object")
            return from_split(split.get("columns"), split.get("data"), "dataframe_split")
        if (records := body.get("dataframe_records")) is not None:
            return from_rows(records, "dataframe_records")
    if V1 in kinds or MLFLOW in kinds:
        if (instances := body.get("instances")) is not None:
            return from_rows(instances, "instances")
        if inputs is not None:
            return from_columns(inputs, "inputs")
    return None


def _response(body: dict[str, Any], kinds: Collection[str], tail: bytes) -> Side | None:
    outputs: Any = body.get("outputs")
    if V2 in kinds and _are_tensors(outputs):
        if all("datatype" not in each for each in outputs):
            return None  # a request names the outputs that it wants
        return from_json(outputs, tail, "outputs")
    if V1 in kinds or MLFLOW in kinds:
        predictions = body.get("predictions")
        if predictions is not None:
            if isinstance(predictions, dict) and not all(
                isinstance(column, list) for column in predictions.values()
            ):
                predictions = [predictions]
            if isinstance(predictions, (int, float)):
                predictions = [predictions]
            return from_columns(predictions, "predictions")
        if V1 in kinds and outputs is not None:
            return from_columns(outputs, "outputs")
    return None


def _are_tensors(found: Any) -> bool:
    return (
        isinstance(found, list)
        and bool(found)
        and all(isinstance(each, dict) and "name" in each for each in found)
    )
