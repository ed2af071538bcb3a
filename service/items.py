"""What ``tail`` prints for one message: a line of JSON, or something for people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from aiokafka import ConsumerRecord

from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.errors import RejectedError
from attributary.schemas.row import CONTENT_HEADER, MODEL_HEADER, decode_json_rows
from attributary.schemas.unique_information import UniqueInformationRun
from attributary.service.printable import printable, printable_bytes
from attributary.service.result_tables import attribution_view, drift_view, moment

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN_BYTES = 200
_PIPED_WIDTH = 140


class Item(Protocol):
    """One thing to show."""

    def as_json(self) -> str:
        """Return one line of JSON."""

    def draw(self, console: Console) -> None:
        """Print it for people."""


def human_printer() -> Callable[[Item], None]:
    """Return what prints items to the standard output, wide enough for a pipe too."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else _PIPED_WIDTH
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    return lambda item: item.draw(console)


class ResultItem:
    """Attributions or drift of one window."""

    def __init__(self, message: WindowAttribution | WindowDrift, top: int) -> None:
        self._message = message
        self._top = top

    def as_json(self) -> str:
        return self._message.to_bytes().decode()

    def draw(self, console: Console) -> None:
        message = self._message
        view = (
            attribution_view(message, self._top)
            if isinstance(message, WindowAttribution)
            else drift_view(message, self._top)
        )
        console.print(view)


class RunItem:
    """A scheduled run of ``mcir-m``."""

    def __init__(self, run: UniqueInformationRun, top: int) -> None:
        self.model = run.model
        self._run = run
        self._top = top

    def as_json(self) -> str:
        return self._run.to_bytes().decode()

    def draw(self, console: Console) -> None:
        from attributary.service.information_table import information_view

        run = self._run
        console.print(f"due {moment(run.tick)}, computed in {run.seconds:.2g} s", style="dim")
        console.print(information_view(run.model, run.result, self._top))


class DeadItem:
    """A rejected message: why, where it came from, and its first bytes."""

    def __init__(self, record: ConsumerRecord) -> None:
        self._record = record
        headers = dict(record.headers)
        self.model = headers.get(MODEL_HEADER, b"").decode("utf-8", "replace") or None
        try:
            self._letter: DeadLetter | None = DeadLetter.from_headers(record.headers)
        except (KeyError, ValueError):
            self._letter = None

    def as_json(self) -> str:
        letter, value = self._letter, self._record.value or b""
        fields: dict[str, Any] = {} if letter is None else msgspec.to_builtins(letter)
        try:
            text: str | None = value.decode()
        except UnicodeDecodeError:
            text = None
        return msgspec.json.encode(
            {**fields, "model": self.model, "text": text, "value": value}
        ).decode()

    def draw(self, console: Console) -> None:
        letter, value = self._letter, self._record.value or b""
        if letter is None:
            console.print(f"dead letter {self._record.offset} without its headers", style="red")
        else:
            rows = f", rows {', '.join(map(str, letter.rows[:10]))}" if letter.rows else ""
            more = "…" if len(letter.rows) > 10 else ""
            origin = f"{printable(letter.topic)}[{letter.partition}]@{letter.offset}"
            console.print(
                f"{printable(letter.reason)}  {origin}{rows}{more}  {moment(letter.first_seen)}",
                style="bold red",
            )
            console.print(f"  {printable(letter.message, 500)}")
        console.print(f"  {printable_bytes(value, _SHOWN_BYTES)}", style="dim")


class RowItem:
    """One row as it travels, or why it cannot be read."""

    def __init__(self, record: ConsumerRecord, model: str | None, row: dict[str, Any]) -> None:
        self.model = model
        place = {"partition": record.partition, "offset": record.offset}
        self._fields = {**place, **({} if model is None else {"model": model}), **row}

    def as_json(self) -> str:
        return msgspec.json.encode(self._fields).decode()

    def draw(self, console: Console) -> None:
        console.print(printable(self.as_json()), soft_wrap=True)


def row_items(record: ConsumerRecord) -> Iterator[RowItem]:
    """Yield the rows of one message."""
    headers = dict(record.headers)
    model = headers.get(MODEL_HEADER, b"").decode("utf-8", "replace") or None
    value = record.value or b""
    try:
        if _is_arrow(headers.get(CONTENT_HEADER, b""), value):
            yield from _arrow_items(record, value, model)
            return
        found = decode_json_rows(value, model=model)
    except RejectedError as error:
        unread = {"unreadable": str(error), "bytes": printable_bytes(value, _SHOWN_BYTES)}
        yield RowItem(record, model, unread)
        return
    for _, named, row in found.rows:
        fields = msgspec.to_builtins(row)
        fields.pop("model", None)
        yield RowItem(record, named, fields)
    for problem in found.errors:
        yield RowItem(record, model, {"row": problem.index, "unreadable": problem.message})


def _is_arrow(content: bytes, value: bytes) -> bool:
    from attributary.schemas.arrow import ARROW_CONTENT, CONTINUATION

    return content == ARROW_CONTENT.encode() if content else value.startswith(CONTINUATION)


def _arrow_items(record: ConsumerRecord, value: bytes, model: str | None) -> Iterator[RowItem]:
    from attributary.schemas.arrow import decode_arrow_rows

    rows = decode_arrow_rows(value, model=model)
    features = {name: column.to_pylist() for name, column in rows.features.items()}
    for index in range(rows.rows):
        fields: dict[str, Any] = {
            "features": {name: values[index] for name, values in features.items()},
            "outputs": {name: float(values[index]) for name, values in rows.outputs.items()},
        }
        if rows.ids is not None and (given := rows.ids[index]) is not None:
            fields["id"] = given.decode("utf-8", "replace")
        if rows.time is not None:
            fields["time"] = int(rows.time[index]) / 1000
        if rows.weight is not None:
            fields["weight"] = float(rows.weight[index])
        yield RowItem(record, rows.model, fields)
