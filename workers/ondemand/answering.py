"""From a job to its final answer, whatever happens on the way."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

import numpy as np

from attributary.schemas.card import ModelCard
from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.explanation import (
    KIND_HEADER,
    ErrorCode,
    Explanation,
    Failure,
    McirResult,
    Outcome,
    Result,
)
from attributary.schemas.request import ExplanationRequest, Instance, StreamWindow
from attributary.schemas.topics import Topics
from attributary.schemas.unique_information import UNIQUE_INFORMATION, UniqueInformationRun
from attributary.workers.ondemand.answers import AnswerLog, answer_record
from attributary.workers.ondemand.compute import Work, compute, parameters_of
from attributary.workers.ondemand.errors import (
    CancelledRequestError,
    ExpiredError,
    LostError,
    RequestError,
)
from attributary.workers.ondemand.inputs import Inputs
from attributary.workers.ondemand.job import Job
from attributary.workers.ondemand.methods import find_method
from attributary.workers.ondemand.methods.method import Floats
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.ondemand.model_cache import ModelCache
from attributary.workers.ondemand.options import OnDemandOptions
from attributary.workers.ondemand.samples import Drawn, SampleReader
from attributary.workers.ondemand.schedule import Due, check_scheduled
from attributary.workers.stream.block import Rejection
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.layout import Layout
from attributary.workers.stream.outgoing import MAX_RECORD_BYTES, Outgoing, dead_letter_record

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1
# A thread that was told to end by ``job.check`` has so long before it is answered for.
_GRACE_SECONDS = 1.0
_HEADERS_BYTES = 65_536
_BACKGROUND_ROWS = 100


class Answering:
    """Computes the answer of one job at a time per caller; nothing that a request holds escapes it."""

    def __init__(
        self,
        topics: Topics,
        options: OnDemandOptions,
        catalogue: ControlCatalogue,
        answers: AnswerLog,
        samples: SampleReader,
        cache: ModelCache,
        metrics: OnDemandMetrics,
        *,
        answer_partitions: int,
        worker: str,
        device: str = "cpu",
    ) -> None:
        self._topics = topics
        self._options = options
        self._catalogue = catalogue
        self._answers = answers
        self._samples = samples
        self._cache = cache
        self._metrics = metrics
        self._answer_partitions = answer_partitions
        self._worker = worker
        self._device = device

    async def stop(self) -> None:
        """Close the models."""
        await asyncio.to_thread(self._cache.close)

    async def answer(
        self, job: Job, threads: Executor, begin: Callable[[Job], Awaitable[None]]
    ) -> list[Outgoing]:
        """Return the records that answer the job; none where it is another worker's.

        ``begin`` is awaited before anything is computed.
        """
        started = time.monotonic()
        request: ExplanationRequest | None = None
        result: Result | None = None
        failure: Failure | None = None
        outcome: Outcome = "error"
        try:
            request = job.request(self._options.max_request_bytes)
            job.check()
            self._refuse_deadly(job)
            await begin(job)
            job.limit(self._options.max_seconds)
            result = await self._result(job, request, threads)
            outcome = "result"
        except LostError:
            return []
        except CancelledRequestError:
            outcome = "cancelled"
        except ExpiredError:
            outcome = "expired"
        except RequestError as error:
            failure = Failure(code=error.code, message=str(error)[:2000])
        except Exception as error:  # whatever a request makes go wrong, the worker goes on
            _log.exception("a request ended unexpectedly: %s", job.origin)
            failure = Failure(code=ErrorCode.INTERNAL, message=f"{error!r}"[:2000])
        if job.id is None:
            return [self._dead_letter(job, failure)]
        message = Explanation(
            id=job.id,
            model=None if request is None else request.model,
            method=None if request is None else request.method,
            outcome=outcome,
            error=failure,
            result=result,
            background_rows=job.background_rows,
            model_calls=job.model_calls,
            model_rows=job.model_rows,
            artefact_sha256=job.artefact_sha256,
            seed=0 if request is None else request.seed,
            attempt=job.attempt,
            requested_at=job.record.timestamp,
            computed_at=round(time.time() * 1000),
            seconds=time.monotonic() - started,
        )
        record = self._record(job, message)
        if job.due is None or job.answer is None or not isinstance(job.answer.result, McirResult):
            return [record]
        # Before the answer, which says that all is done.
        return [self._run_record(job.answer, job.answer.result, job.due), record]

    def _run_record(self, answer: Explanation, result: McirResult, due: Due) -> Outgoing:
        """Return a scheduled run as the attributions topic has it, beside its model's windows."""
        model = answer.model or ""
        run = UniqueInformationRun(
            id=answer.id,
            model=model,
            tick=due.tick,
            every_seconds=due.period / 1000,
            computed_at=answer.computed_at,
            seconds=answer.seconds,
            result=result,
        )
        headers = [(KIND_HEADER, UNIQUE_INFORMATION)]
        return Outgoing(self._topics.attributions, model.encode(), run.to_bytes(), None, headers)

    def _record(self, job: Job, message: Explanation) -> Outgoing:
        record = answer_record(self._topics, self._answer_partitions, message, job, self._worker)
        size = len(record.value or b"")
        if size > MAX_RECORD_BYTES - _HEADERS_BYTES:
            failure = Failure(
                code=ErrorCode.LIMIT_EXCEEDED,
                message=f"the answer has {size} bytes, more than a record takes; ask for fewer instances "
                "or one output",
            )
            smaller = message.model_copy(
                update={"result": None, "error": failure, "outcome": "error"}
            )
            return self._record(job, smaller)
        job.answer = message
        return record

    def count(self, job: Job) -> None:
        """Count the job's answer, which is in the log now."""
        message = job.answer
        if message is None:
            self._metrics.dead_letters.inc()
            return
        # A label for every name that somebody asks for would be without end.
        known = message.model is not None and self._catalogue.card(message.model) is not None
        model = (message.model or "") if known else ""
        self._metrics.answers.labels(model, message.method or "", message.outcome).inc()
        if message.error is not None:
            self._metrics.errors.labels(model, message.error.code.value).inc()
        self._metrics.request_seconds.labels(message.method or "", message.outcome).observe(
            message.seconds
        )

    def _dead_letter(self, job: Job, failure: Failure | None) -> Outgoing:
        """Return the request as a dead letter: it says no id that an answer could go to."""
        letter = DeadLetter(
            *job.origin,
            reason="bad_request" if failure is None else failure.code.value,
            message="" if failure is None else failure.message,
            first_seen=round(time.time() * 1000),
        )
        return dead_letter_record(Rejection(letter, job.record, "", 0), self._topics)

    def _refuse_deadly(self, job: Job) -> None:
        begun = self._answers.begun(job.origin)
        if begun >= self._options.attempts:
            job.attempt = begun
            raise RequestError(
                ErrorCode.WORKER_LOST,
                f"{begun} workers began with this request and ended before they could answer it; it is "
                "not tried again",
            )

    async def _result(self, job: Job, request: ExplanationRequest, threads: Executor) -> Result:
        card = self._catalogue.card(request.model)
        if card is None:
            raise RequestError(
                ErrorCode.MODEL_UNKNOWN,
                f"no model {request.model!r} is registered; register its card with an artefact",
            )
        job.due = check_scheduled(request, card, self._options.schedule_seconds)
        method = find_method(request.method)
        parameters = parameters_of(method, request.parameters)
        layouts = self._catalogue.layouts(request.model)
        newest = layouts[max(layouts)] if layouts else Layout((), ())
        inputs = Inputs(card, newest.columns)
        if inputs.width > self._options.max_features:
            raise RequestError(
                ErrorCode.LIMIT_EXCEEDED,
                f"the model has {inputs.width} columns, levels counted; at most "
                f"{self._options.max_features} are explained",
            )
        observed = None
        if method.observes and isinstance(request.instances, StreamWindow):
            names = tuple(card.outputs) or newest.outputs
            drawn = await self._window(job, card, inputs, request.instances, names)
            X, observed = drawn.X, (names, drawn.Y)
        else:
            X = await self._rows(job, card, inputs, request.instances, "instance")
        background = None
        if request.background is not None and method.background == "unused":
            raise RequestError(
                ErrorCode.BAD_REQUEST, f"{request.method} has no use for a background: leave it out"
            )
        if method.observes and isinstance(request.background, StreamWindow):
            background = await self._earlier(job, card, inputs, request.background)
        elif request.background is not None:
            background = await self._rows(job, card, inputs, request.background, "background row")
        elif method.background == "needed":
            window = StreamWindow(rows=min(_BACKGROUND_ROWS, self._options.max_background))
            background = await self._rows(job, card, inputs, window, "background row")
        ids: tuple[str | None, ...] = (None,) * len(X)
        if isinstance(request.instances, list):
            ids = tuple(instance.id for instance in request.instances)
        work = Work(
            request, card, method, parameters, inputs, X, ids, background, observed, self._device
        )
        computing = asyncio.get_running_loop().run_in_executor(
            threads, compute, job, work, self._cache, self._options
        )
        return await self._watched(job, computing)

    async def _rows(
        self,
        job: Job,
        card: ModelCard,
        inputs: Inputs,
        given: list[Instance] | StreamWindow,
        what: str,
    ) -> Floats:
        limit = self._options.max_instances if what == "instance" else self._options.max_background
        count = len(given) if isinstance(given, list) else given.rows
        if count > limit:
            raise RequestError(
                ErrorCode.LIMIT_EXCEEDED, f"{count} {what}s; at most {limit} are taken"
            )
        if isinstance(given, list):
            return await asyncio.to_thread(inputs.encode, given, what)
        drawn = await self._samples.draw(card.model, given, inputs)
        job.check()
        return drawn.X

    async def _window(
        self,
        job: Job,
        card: ModelCard,
        inputs: Inputs,
        window: StreamWindow,
        outputs: tuple[str, ...],
    ) -> Drawn:
        if window.rows > self._options.max_window:
            raise RequestError(
                ErrorCode.LIMIT_EXCEEDED,
                f"{window.rows} rows of the stream; at most {self._options.max_window} are taken",
            )
        drawn = await self._samples.draw(card.model, window, inputs, outputs)
        job.check()
        return drawn.by_time()

    async def _earlier(
        self, job: Job, card: ModelCard, inputs: Inputs, window: StreamWindow
    ) -> Floats:
        """Return the rows of a window that others are compared with, none where it has no more."""
        try:
            return (await self._window(job, card, inputs, window, ())).X
        except RequestError as error:
            if error.code is not ErrorCode.SAMPLES_MISSING:
                raise
            return np.empty((0, inputs.width))

    async def _watched(self, job: Job, computing: asyncio.Future[Result]) -> Result:
        """Return what the thread returns. Where it does not end when it must, the request ends without
        it, and the thread's place is taken until it does."""
        while True:
            done, _ = await asyncio.wait({computing}, timeout=_LOOK_SECONDS)
            if done:
                return computing.result()
            try:
                job.check()
            except Exception:
                done, _ = await asyncio.wait({computing}, timeout=_GRACE_SECONDS)
                if done:
                    return computing.result()
                computing.add_done_callback(lambda late: late.cancelled() or late.exception())
                raise
