"""``attributary explain``: asks, shows progress, prints the answer."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from attributary.schemas.errors import ConfigurationError
from attributary.schemas.explanation import Explanation, McirResult, OrdShapResult, Progress
from attributary.schemas.request import Instance, MethodName, StreamWindow
from attributary.service.explainer import Explainer
from attributary.service.explanation_tables import explanation_view
from attributary.service.information_pictures import information_parts
from attributary.service.instance_files import read_instances
from attributary.service.order_pictures import order_parts
from attributary.service.picture_sheet import check_file
from attributary.service.picture_sheet import save as save_picture
from attributary.service.printable import printable
from attributary.service.reach import require_broker
from attributary.service.registry import find_card
from attributary.service.settings import Settings
from attributary.service.topics import check_topics

FAILED = 1
_ROLES = ("models", "requests", "requests_high", "explanations", "cancellations")
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_WIDTH = 100
#: The method that takes a window of the stream as its rows, and those whose answers are drawn.
_OF_A_WINDOW = "mcir-m"
_DRAWN = ("ordshap", "mcir-m")
_WINDOW_ROWS, _BACKGROUND_ROWS = 2000, 100


@dataclass(frozen=True)
class Question:
    """What the command was asked."""

    model: str
    instance: Path | None
    sample: int | None
    method: str
    output: str | None
    background: Path | None
    window: str | None
    rows: int | None
    parameters: tuple[str, ...]
    seed: int
    timeout: float
    high: bool


def ask(
    settings: Settings, question: Question, *, top: int, as_json: bool, save: Path | None = None
) -> int:
    """Ask, print the answer, and return the exit code: 0 for a result, else 1.

    ``save`` is a file *.html or *.png to draw the answer into (ordshap, mcir-m).

    ConfigurationError: what was given cannot be sent. BrokerError, NoAnswerError: nobody answers.
    """
    if question.method == _OF_A_WINDOW:
        if question.sample is not None or question.background is not None:
            raise ConfigurationError(
                "mcir-m explains all rows of a window of the stream: --window TIME and --rows N, or rows of "
                "your own with --instance FILE; it takes neither --sample nor --background"
            )
        if question.instance is not None and question.window is not None:
            raise ConfigurationError("--instance and --window both name the rows: choose one")
    elif (question.instance is None) == (question.sample is None):
        raise ConfigurationError(
            "say which row to explain: --instance FILE (- for standard input), or --sample N for rows "
            "of the stream"
        )
    if question.background is not None and question.window is not None and not question.sample:
        raise ConfigurationError("--background and --window both name the background: choose one")
    if save is not None:
        if question.method not in _DRAWN:
            raise ConfigurationError(
                f"--save draws what --method {' or '.join(_DRAWN)} answers, got {question.method}"
            )
        check_file(save)
    window = parse_window(question.window)
    parameters = _parameters(question.parameters)
    require_broker(settings.connection)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    answer = asyncio.run(_ask(settings, question, window, parameters, quiet=as_json))
    if save is not None and isinstance(answer.result, OrdShapResult):
        save_picture(save, f"OrdShap: {question.model}", order_parts(answer.result))
    if save is not None and isinstance(answer.result, McirResult):
        save_picture(save, f"MCIR-M: {question.model}", information_parts(answer.result))
    if as_json:
        print(answer.to_bytes().decode(), flush=True)
    elif answer.outcome == "result":
        _console(sys.stdout).print(explanation_view(answer, top))
    if answer.outcome == "result":
        return 0
    print(_why_not(answer), file=sys.stderr)
    return FAILED


async def _ask(
    settings: Settings,
    question: Question,
    window: StreamWindow,
    parameters: dict[str, Any],
    *,
    quiet: bool,
) -> Explanation:
    connection, topics = settings.connection, settings.topics
    await check_topics(connection, topics, roles=_ROLES)
    card = await find_card(connection, topics, question.model)
    if card is None:
        raise ConfigurationError(
            f"no model {printable(question.model)!r} is registered: `attributary register CARD.json "
            "--artefact FILE` says what it is and where it lies"
        )
    instances: list[Instance] | StreamWindow
    if question.instance is not None:
        instances = read_instances(question.instance, card)
    elif question.method == _OF_A_WINDOW:
        instances = window.model_copy(update={"rows": question.rows or _WINDOW_ROWS})
    else:
        instances = window.model_copy(update={"rows": question.sample})
    background: list[Instance] | StreamWindow | None = None
    if question.background is not None:
        background = read_instances(question.background, card)
    elif question.method == "t-explainer" or (
        question.window is not None and question.method != _OF_A_WINDOW
    ):
        background = window.model_copy(update={"rows": question.rows or _BACKGROUND_ROWS})
    shown = Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        console=_console(sys.stderr),
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )
    async with Explainer(connection, model=question.model, topics=topics) as explainer:
        with shown:
            task = shown.add_task("waiting for a worker", total=None)

            def on_progress(progress: Progress) -> None:
                shown.update(
                    task,
                    description="explaining",
                    completed=progress.done,
                    total=progress.total or None,
                )

            return await explainer.arequest(
                instances,
                method=cast(MethodName, question.method),
                output=_output(question.output, card.outputs),
                background=background,
                parameters=parameters,
                seed=question.seed,
                timeout=question.timeout,
                priority="high" if question.high else "normal",
                on_progress=on_progress,
            )


def parse_window(text: str | None) -> StreamWindow:
    """Return the window of ``10m`` or ``FROM/TO``; None: all of the stream. ConfigurationError otherwise."""
    if text is None:
        return StreamWindow()
    start, slash, end = text.partition("/")
    try:
        if span := _SPAN.fullmatch(text):
            seconds = float(span[1]) * _SECONDS[span[2]]
            if seconds > 0:
                return StreamWindow(seconds=seconds)
        if slash:
            return StreamWindow(start=_moment(start), end=_moment(end))
    except ValueError as error:
        raise ConfigurationError(f"--window {text!r}: {_first_line(error)}") from None
    raise ConfigurationError(
        f"--window {text!r}: expected 90s, 10m, 2h or 7d, or FROM/TO such as 2026-03-01/2026-03-02T12:00Z"
    )


def _moment(text: str) -> int | None:
    if not text:
        return None
    moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return round(moment.timestamp() * 1000)


def _first_line(error: ValueError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return ": ".join([*map(str, first["loc"]), first["msg"]])
    return str(error).strip().partition("\n")[0]


def _parameters(given: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise ConfigurationError(f"--parameter {pair!r}: expected NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _output(given: str | None, names: list[str]) -> str | int | None:
    if given is None or given in names or not given.isdecimal():
        return given
    return int(given)


def _why_not(answer: Explanation) -> str:
    if answer.error is not None:
        return f"error: {answer.error.code.value}: {printable(answer.error.message, 1000)}"
    if answer.outcome == "expired":
        return "error: expired: no result by the deadline; give it more time with --timeout"
    return "error: the request was taken back"


def _console(stream: Any) -> Console:
    found = Console(file=stream, highlight=False)
    return found if found.is_terminal else Console(file=stream, highlight=False, width=_WIDTH)
