"""Files of one JSON object a line as messages: rows as they travel, or flat objects."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from attributary.schemas.errors import ConfigurationError, Reason, RejectedError
from attributary.schemas.row import JSON_CONTENT, decode_json_rows
from attributary.service.columns import RESERVED, Choice, Columns, choose
from attributary.service.event_times import EventTimes
from attributary.service.file_messages import Message
from attributary.service.row_encoder import MAX_ROW_BYTES, RowEncoder
from attributary.service.table_files import Reject

_LONGEST_LINE = 8 * 2**20


class JsonLines:
    """A file of one object a line, ``.gz`` or not. A line that is no row goes to ``reject``.

    Without outputs in the choice every line is a row as it travels, {"features": …, "outputs": …}; with
    them, or a model that says them, every line is a flat object, and its other members are the features.
    """

    def __init__(
        self,
        path: Path,
        model: str,
        choice: Choice,
        *,
        times: EventTimes,
        reject: Reject,
        skip: int = 0,
    ) -> None:
        self._path = path
        self._model = model
        self._choice = choice
        self._times = times
        self._reject = reject
        self._encoder = RowEncoder(model)
        self._columns: Columns | None = None
        self._raw: IO[bytes] | None = None
        self._total = path.stat().st_size
        self._skip = skip
        self._line = 0

    def progress(self) -> tuple[int, int]:
        """Return (done, total) in bytes of the file."""
        if self._raw is None or self._raw.closed:
            return 0, self._total
        return self._raw.tell(), self._total

    def columns(self) -> tuple[Columns, set[str]]:
        """Return the columns of flat objects, and which hold text, by the first readable line."""
        for line in self._lines():
            try:
                first = _object(line)
            except RejectedError:
                continue
            texts = {name for name, value in first.items() if isinstance(value, str)}
            return choose(self._choice, list(first)), texts
        raise ConfigurationError(f"{self._path} holds no JSON object")

    def messages(self, batch_rows: int) -> Iterator[Message]:
        """Yield JSON arrays of at most ``batch_rows`` rows."""
        if self._choice.outputs or self._choice.modelled:
            self._columns, _ = self.columns()
        rows: list[bytes] = []
        size = last = 0
        for row in self._rows():
            if rows and (len(rows) == batch_rows or size + len(row) > MAX_ROW_BYTES):
                yield Message(b"[" + b",".join(rows) + b"]", len(rows), JSON_CONTENT, last)
                rows, size = [], 0
            rows.append(row)
            last = self._line
            size += len(row) + 1
        if rows:
            yield Message(b"[" + b",".join(rows) + b"]", len(rows), JSON_CONTENT, last)

    def _rows(self) -> Iterator[bytes]:
        for line in self._lines():
            if self._line <= self._skip:
                continue
            try:
                yield self._native(line) if self._columns is None else self._flat(line)
            except RejectedError as error:
                self._reject(f"line {self._line}: {error}")

    def _lines(self) -> Iterator[bytes]:
        self._line = 0
        with self._path.open("rb") as self._raw:
            zipped = self._path.suffix == ".gz"
            file = cast("IO[bytes]", gzip.GzipFile(fileobj=self._raw)) if zipped else self._raw
            try:
                while line := file.readline(_LONGEST_LINE):
                    self._line += 1
                    if stripped := line.strip():
                        yield stripped
            except (OSError, EOFError) as error:
                raise ConfigurationError(f"{self._path}: {error}") from None

    def _native(self, line: bytes) -> bytes:
        if line.startswith(b"["):
            raise RejectedError(Reason.WRONG_TYPE, "expected one JSON object a line, got an array")
        if len(line) > MAX_ROW_BYTES:
            raise RejectedError(Reason.TOO_LARGE, f"longer than {MAX_ROW_BYTES:,} bytes")
        decode_json_rows(line, model=self._model)
        return line

    def _flat(self, line: bytes) -> bytes:
        found, names = _object(line), cast("Columns", self._columns)
        missing = [name for name in names.outputs if name not in found]
        if missing:
            raise RejectedError(Reason.OUTPUTS_MISSING, f"no output {missing[0]!r}")
        if self._choice.features is not None:
            features = {name: found[name] for name in names.features if name in found}
        else:
            others = (names.id, names.time, names.weight, *self._choice.left_out)
            taken = {*names.outputs, *others, *RESERVED}
            features = {name: value for name, value in found.items() if name not in taken}
        return self._encoder.encode(
            features,
            {name: found[name] for name in names.outputs} or 0.0,
            id=_member(found, names.id),
            time=self._time(_member(found, names.time)),
            weight=_member(found, names.weight),
        )

    def _time(self, value: Any) -> float | None:
        return None if value is None else self._times.value(value)


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except (msgspec.MsgspecError, RecursionError):
        try:
            found = json.loads(line)  # NaN and Infinity, as Python writes them
        except (ValueError, RecursionError) as error:
            raise RejectedError(Reason.NOT_DECODABLE, f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RejectedError(
            Reason.WRONG_TYPE, f"expected a JSON object, got {type(found).__name__}"
        )
    return found


def _member(found: dict[str, Any], name: str | None) -> Any:
    """Return what the line has under ``name``; RejectedError where it has nothing there."""
    if name is None:
        return None
    if found.get(name) is None:
        raise RejectedError(Reason.WRONG_TYPE, f"no value for {name!r}")
    return found[name]
