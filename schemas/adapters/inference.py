"""What adapters find in a message: inferences, halves that wait for the other one, or nothing to count."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from attributary.schemas.adapters.side import Side, choose
from attributary.schemas.errors import Reason, RejectedError
from attributary.schemas.row import (
    FeatureValue,
    Row,
    RowError,
    check_category,
    check_names,
    event_time_ms,
    model_name,
    output_number,
    weight_of,
)

Time = str | int | float | None


@dataclass(frozen=True)
class Facts:
    """What a message says of an inference beside its values; ``model``: by its own name there."""

    id: str | int | None = None
    model: str | None = None
    time: Time = None
    weight: float = 1.0


@dataclass(frozen=True)
class Half:
    """A request or a response; the two of one ``pair`` make an inference.

    ``side`` None: the model refused or failed, so there is nothing to count.
    """

    pair: tuple[str, ...]
    response: bool
    side: Side | None
    facts: Facts


@dataclass(frozen=True)
class Inference:
    """A request and its response."""

    request: Side
    response: Side
    facts: Facts


@dataclass(frozen=True)
class Skipped:
    """A message that is none of the rows that were asked for; ``reason`` is a metric's label."""

    reason: str


Part = Half | Inference | Skipped


@dataclass(frozen=True)
class Naming:
    """What the user calls things: ``model`` for all rows, names of features and outputs to take (or to
    give, where a message has none), ``only``: models by their own names that are read."""

    model: str | None = None
    features: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rows:
    """The rows of one inference, and why others of it cannot be used, by position."""

    rows: list[Row] = field(default_factory=list)
    errors: list[RowError] = field(default_factory=list)


def join(request: Half, response: Half) -> Inference | None:
    """Return the inference of two halves; None: the model gave no answer. The request says when it was."""
    if request.side is None or response.side is None:
        return None
    first, second = request.facts, response.facts
    facts = Facts(
        first.id if first.id is not None else second.id,
        first.model or second.model,
        first.time if first.time is not None else second.time,
        first.weight,
    )
    return Inference(request.side, response.side, facts)


def to_rows(
    inference: Inference, naming: Naming, *, place: str | None = None, time: Time = None
) -> Rows:
    """Return the rows, with ids of their own where there are several.

    ``place`` and ``time`` stand in for an id and a time that are missing. RejectedError: all are unusable.
    """
    facts = inference.facts
    model = model_name(naming.model or facts.model)
    seen = choose(inference.request, naming.features, "--features")
    said = choose(inference.response, naming.outputs, "--outputs")
    count = len(seen.rows)
    if len(said.rows) != count:
        raise RejectedError(
            Reason.WRONG_TYPE,
            f"{count} rows were asked for and {len(said.rows)} answered",
            rows=count,
        )
    moment = facts.time if facts.time is not None else time
    event_time_ms(moment, 0)
    found = Rows()
    identity = facts.id if facts.id is not None else place
    for index, (features, outputs) in enumerate(zip(seen.rows, said.rows, strict=True)):
        named = identity if count == 1 or identity is None else f"{identity}/{index}"
        try:
            found.rows.append(
                Row(
                    _features(features),
                    _outputs(outputs, said),
                    model=model,
                    id=named,
                    time=moment,
                    weight=weight_of(facts.weight),
                )
            )
        except RejectedError as error:
            found.errors.append(RowError(index, error.reason, str(error)))
    if not found.rows:
        first = found.errors[0]
        raise RejectedError(first.reason, first.message, rows=count)
    return found


def _features(values: dict[str, Any]) -> dict[str, FeatureValue]:
    if not values:
        raise RejectedError(Reason.FEATURES_MISSING, "the row has no features")
    check_names(values)
    return {name: _feature(value, name) for name, value in values.items()}


def _feature(value: Any, name: str) -> FeatureValue:
    if value is None or isinstance(value, (bool, float)):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else _large(value, name)
    if isinstance(value, str):
        check_category(len(value))
        if not value.isascii():
            _encodable(value)
        return value
    raise RejectedError(
        Reason.WRONG_TYPE,
        f"feature {name!r:.60} must be a number, a boolean or text, got {type(value).__name__}",
    )


def _large(value: int, name: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise RejectedError(Reason.WRONG_TYPE, f"feature {name!r:.60} is beyond float64") from None


def _encodable(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RejectedError(
            Reason.NOT_DECODABLE, f"a string holds half of a surrogate pair: {value!r:.60}"
        ) from None


def _outputs(
    values: dict[str, Any], side: Side
) -> float | list[float | None] | dict[str, float | None]:
    """Return the numbers among the outputs: labels beside scores are left out."""
    numbers = {
        name: output_number(value) for name, value in values.items() if not isinstance(value, str)
    }
    if not numbers:
        raise RejectedError(
            Reason.OUTPUTS_MISSING,
            f"no output is a number: {', '.join(map(repr, list(values)[:5])) or 'there is none'}; "
            "name those that are with --outputs",
        )
    if side.unnamed:
        listed = list(numbers.values())
        return listed[0] if len(listed) == 1 and listed[0] is not None else listed
    check_names(numbers)
    return numbers
