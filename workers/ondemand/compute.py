"""Computes one request, in a thread: encodes its rows, opens its model, runs its method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ValidationError

from attributary.schemas.card import ModelCard
from attributary.schemas.explanation import ErrorCode, Result
from attributary.schemas.request import ExplanationRequest, Instance, StreamWindow
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.gateway import Gateway
from attributary.workers.ondemand.inputs import Inputs
from attributary.workers.ondemand.job import Job
from attributary.workers.ondemand.methods.method import Context, Floats, Method, Space
from attributary.workers.ondemand.model_cache import ModelCache
from attributary.workers.ondemand.options import OnDemandOptions
from attributary.workers.stream.layout import DEFAULT_OUTPUT


@dataclass(frozen=True)
class Work:
    """A request with all that it needs: X (n, columns) and background (m, columns), as the stream encodes.

    ``observed``: the outputs' names, and what came with X (n, outputs); None: the model is asked.
    """

    request: ExplanationRequest
    card: ModelCard
    method: Method[Any]
    parameters: BaseModel
    inputs: Inputs
    X: Floats
    ids: tuple[str | None, ...]
    background: Floats | None
    observed: tuple[tuple[str, ...], Floats] | None = None
    device: str = "cpu"


def compute(job: Job, work: Work, cache: ModelCache, options: OnDemandOptions) -> Result:
    """Return the result; raises RequestError, and what ``job.check`` raises."""
    job.check()
    if work.observed is not None:
        return _of_observed(job, work, options)
    with cache.use(work.card) as gateway:
        job.check()
        artefact = work.card.artefact
        job.artefact_sha256 = None if artefact is None else artefact.sha256
        space = work.method.space
        X = work.inputs.to_space(work.X, space)
        background = _background(job, work)
        model = _Model(job, work.inputs, gateway, space, options.max_model_rows)
        every = _names(work.card, model(X[:1]).shape[1])
        names, chosen = _outputs(every, work.request.output)
        context = _context(job, work, gateway, names, chosen, options)

        def asked(rows: Floats) -> Floats:
            found = model(rows)
            return found[:, chosen[0]] if len(chosen) == 1 else found[:, chosen]

        return work.method.run(asked, X, background, work.parameters, context)


def _of_observed(job: Job, work: Work, options: OnDemandOptions) -> Result:
    """Return the result from the outputs that came with the rows: no model is opened."""
    assert work.observed is not None  # noqa: S101
    names, chosen = _outputs(work.observed[0], work.request.output)
    context = _context(job, work, None, names, chosen, options)
    X = work.inputs.to_space(work.X, work.method.space)
    return work.method.run(_not_opened, X, _background(job, work), work.parameters, context)


def _background(job: Job, work: Work) -> Floats | None:
    if work.background is None:
        return None
    job.background_rows = len(work.background)
    return work.inputs.to_space(work.background, work.method.space)


def _not_opened(X: Floats) -> Floats:
    raise RequestError(
        ErrorCode.INTERNAL, f"{len(X)} rows asked of a model that is not opened for such a request"
    )


class _Model:
    """The model as a method sees it: rows of its space in, (n, c) out, counted and limited."""

    def __init__(
        self, job: Job, inputs: Inputs, gateway: Gateway, space: Space, most_rows: int
    ) -> None:
        self._job = job
        self._inputs = inputs
        self._gateway = gateway
        self._space = space
        self._most = most_rows

    def __call__(self, X: Floats) -> Floats:
        job = self._job
        job.check()
        if job.model_rows + len(X) > self._most:
            raise RequestError(
                ErrorCode.LIMIT_EXCEEDED,
                f"more than {self._most} rows would be asked of the model; ask for fewer instances, or "
                "less of the method",
            )
        job.model_calls += 1
        job.model_rows += len(X)
        return self._gateway.evaluate(self._inputs.to_model(X, self._space), job.check)


def _context(
    job: Job,
    work: Work,
    gateway: Gateway | None,
    names: tuple[str, ...],
    chosen: list[int],
    options: OnDemandOptions,
) -> Context:
    space = work.method.space
    handle = None if gateway is None else gateway.handle

    def progress(done: int, total: int) -> None:
        job.done, job.total = done, total
        job.check()

    exact = handle is not None and handle.gradient is not None and work.inputs.plain(space)

    def gradient(rows: Floats) -> Floats:
        job.check()
        assert gateway is not None  # noqa: S101
        job.model_calls += 1
        job.model_rows += len(rows)
        return gateway.differentiate(work.inputs.to_model(rows, space))[:, chosen]

    return Context(
        gradient=gradient if exact else None,
        features=work.inputs.features,
        positions=work.inputs.columns_of(space),
        outputs=names,
        ids=work.ids,
        values=() if work.method.observes else work.inputs.values(work.X),
        bounds=work.inputs.bounds() if space == "columns" else None,
        rng=np.random.default_rng(work.request.seed),
        batch_size=options.batch_rows if gateway is None else gateway.rows,
        precision="float64" if handle is None else handle.precision,
        piecewise_constant=handle is not None and handle.piecewise_constant,
        window=_window(work.request.instances),
        background_window=_window(work.request.background),
        observed=None if work.observed is None else work.observed[1][:, chosen],
        device=work.device,
        progress=progress,
        check=job.check,
    )


def _window(rows: list[Instance] | StreamWindow | None) -> StreamWindow | None:
    return rows if isinstance(rows, StreamWindow) else None


def _names(card: ModelCard, count: int) -> tuple[str, ...]:
    """Return the names of the outputs of a model that returns so many."""
    names = card.outputs or ([DEFAULT_OUTPUT] if count == 1 else [str(i) for i in range(count)])
    if len(names) != count:
        raise RequestError(
            ErrorCode.BAD_OUTPUT,
            f"the model returns {count} outputs; its card names {len(names)}: {names[:5]}",
        )
    return tuple(names)


def _outputs(names: tuple[str, ...], asked: str | int | None) -> tuple[tuple[str, ...], list[int]]:
    """Return the names and positions of the outputs that are asked for."""
    count = len(names)
    if asked is None:
        return names, list(range(count))
    if isinstance(asked, str) and asked not in names:
        raise RequestError(
            ErrorCode.BAD_REQUEST,
            f"the model has no output {asked!r:.80}; it has {list(names[:10])}",
        )
    place = names.index(asked) if isinstance(asked, str) else asked
    if place >= count:
        raise RequestError(
            ErrorCode.BAD_REQUEST, f"the model has {count} outputs, the first is 0; got {place}"
        )
    return (names[place],), [place]


def parameters_of(method: Method[Any], given: dict[str, Any]) -> BaseModel:
    """Return the method's parameters; RequestError names the one that cannot be used."""
    try:
        found: BaseModel = method.parameters.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "parameters"
        said = first["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
        if first["type"] == "extra_forbidden":
            said = f"there is none; there are {', '.join(method.parameters.model_fields)}"
        raise RequestError(ErrorCode.BAD_REQUEST, f"parameters: {place}: {said}") from None
    return found
