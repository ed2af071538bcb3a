"""When a card's ``mcir-m`` is due, and the request for it: one per (model, tick), whoever asks.

A tick is a multiple of the period on the clock. The request's id is made of model and tick, and all requests
of a model lie in one partition, so that the pool's promise holds for them: a request that is sent twice, by
the old and the new owner of the partition say, has one answer and is computed once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import NamedTuple
from zlib import crc32

from attributary.schemas.card import InformationSchedule, ModelCard
from attributary.schemas.errors import ConfigurationError
from attributary.schemas.explanation import ErrorCode, McirResult
from attributary.schemas.request import DEADLINE_HEADER, ExplanationRequest, StreamWindow
from attributary.schemas.topics import Topics
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.methods.mcir_parameters import McirParameters
from attributary.workers.stream.outgoing import Outgoing

METHOD = "mcir-m"
_PREFIX = "scheduled|"
_LONGEST_NAME = 160


def period_ms(schedule: InformationSchedule, shortest_seconds: float) -> int:
    """Return the time from run to run: the card's, but no less than the workers allow."""
    return round(max(schedule.every_seconds, shortest_seconds) * 1000)


def request_partition(model: str, partitions: int) -> int:
    """Return the partition of the requests topic that a model's scheduled requests lie in."""
    return crc32(model.encode()) % partitions


def scheduled_id(model: str, tick: int) -> str:
    """Return the id of the request of a tick, in milliseconds; a long name is shortened, with its hash."""
    if len(model) > _LONGEST_NAME:
        model = model[:_LONGEST_NAME] + hashlib.blake2b(model.encode(), digest_size=8).hexdigest()
    return f"{_PREFIX}{tick}|{model}"


def tick_of(request_id: str) -> int | None:
    """Return the tick that a request's id names; None for a request that was not scheduled."""
    if not request_id.startswith(_PREFIX):
        return None
    tick = request_id.removeprefix(_PREFIX).partition("|")[0]
    return int(tick) if tick.isascii() and tick.isdecimal() and len(tick) < 16 else None


def scheduled_request(
    card: ModelCard, tick: int, window: tuple[int, int], before: McirResult | None
) -> ExplanationRequest:
    """Return the request for a window [start, end); neighbourhoods are those of ``before`` where they fit."""
    schedule = card.unique_information
    if schedule is None:
        raise ConfigurationError(f"the card of {card.model} has no schedule")
    rows = StreamWindow(start=window[0], end=window[1], rows=schedule.rows)
    parameters, background = dict(schedule.parameters), None
    found_on = None if before is None else _fitting(card, schedule, before)
    if before is not None and found_on is not None:
        background = found_on
        parameters["neighbourhoods"] = {one.feature: one.neighbourhood for one in before.features}
        parameters["max_change"] = schedule.reuse_below
    return ExplanationRequest(
        id=scheduled_id(card.model, tick),
        model=card.model,
        method=METHOD,
        output=schedule.output,
        instances=rows,
        background=background,
        parameters=parameters,
    )


def _fitting(
    card: ModelCard, schedule: InformationSchedule, before: McirResult
) -> StreamWindow | None:
    """Return the rows that a run's neighbourhoods were found on; None where they are not to be kept."""
    source = before.neighbourhoods
    asked = parameters_or_none(schedule.parameters)
    if not schedule.reuse_below or source is None or source.found_on is None or asked is None:
        return None
    outputs = [schedule.output] if schedule.output is not None else card.outputs
    if (outputs and outputs != before.outputs) or asked.neighbourhoods is not None:
        return None
    fits = (source.screen, source.threshold, source.max_candidates, source.sizes) == (
        asked.screen, asked.least, asked.max_candidates, asked.tried_sizes,
    )  # fmt: skip
    return source.found_on if fits else None


def parameters_or_none(given: Mapping[str, object]) -> McirParameters | None:
    """Return a schedule's parameters; None where they cannot be used, which the answer will say."""
    try:
        return McirParameters.model_validate(given)
    except ValueError:
        return None


def scheduled_record(
    request: ExplanationRequest, tick: int, period: int, topics: Topics, partition: int
) -> Outgoing:
    """Return the request's record; when the next tick comes it is not wanted any more."""
    deadline = [(DEADLINE_HEADER, str(tick + period).encode())]
    return Outgoing(topics.requests, request.id.encode(), request.to_bytes(), partition, deadline)


class Due(NamedTuple):
    """When a scheduled request was due, and the time to the next, milliseconds."""

    tick: int
    period: int


def check_scheduled(
    request: ExplanationRequest, card: ModelCard, shortest_seconds: float
) -> Due | None:
    """Return when a scheduled request was due, None for others.

    RequestError: its id says that it was scheduled, and the model's card does not ask for it so.
    """
    tick = tick_of(request.id)
    if tick is None:
        if request.id.startswith(_PREFIX):
            raise RequestError(ErrorCode.BAD_REQUEST, f"no tick in the id {request.id!r:.80}")
        return None
    schedule = card.unique_information
    period = 0 if schedule is None else period_ms(schedule, shortest_seconds)
    rows = request.instances
    if (
        schedule is None
        or request.id != scheduled_id(card.model, tick)
        or tick % period
        or (request.method, request.output) != (METHOD, schedule.output)
        or not isinstance(rows, StreamWindow)
        or rows.rows != schedule.rows
        or {**request.parameters, **schedule.parameters} != request.parameters
        or not set(request.parameters) - set(schedule.parameters)
        <= {"neighbourhoods", "max_change"}
    ):
        raise RequestError(
            ErrorCode.BAD_REQUEST,
            f"the id {request.id!r:.80} is kept for what a card's unique_information asks for, and the "
            f"card of {card.model} does not ask for this (any more)",
        )
    return Due(tick, period)
