"""A training table as a model's rows: read as often as asked, a few megabytes at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from attributary.schemas.arrow import ArrowRows
from attributary.schemas.arrow_columns import Columns, ColumnShape, numbers
from attributary.schemas.errors import ConfigurationError
from attributary.schemas.row import Row, decode_json_rows
from attributary.service.columns import Choice, choose_typed, text_columns
from attributary.service.event_times import EventTimes
from attributary.service.json_lines import JsonLines
from attributary.service.query_rows import QueryRows
from attributary.service.table_files import CsvFile, ParquetFile, Reject, check_file, kind_of
from attributary.workers.stream.layout import DEFAULT_OUTPUT, output_names

_LINES = 4096

Rows = ArrowRows | list[Row]


@dataclass(frozen=True)
class Named:
    """The features of a table and which of them hold text; ``outputs``: none where a model says them."""

    features: tuple[str, ...]
    texts: frozenset[str]
    outputs: tuple[str, ...]
    left_out: tuple[str, ...] = ()


class TrainingTable:
    """A CSV, JSONL or Parquet file, or what a query returns, which is asked once for every pass.

    ``progress`` is (done, total) of the pass that runs.
    """

    def __init__(
        self,
        path: Path | None,
        model: str,
        choice: Choice,
        *,
        kind: str = "auto",
        query: str = "",
        database: Path | None = None,
    ) -> None:
        """ConfigurationError: there is no such file, it lacks a column, or DuckDB refuses the query."""
        if path is not None:
            check_file(path)
        self.source = "the query" if path is None else str(path)
        self._path = path
        self._query = query, database
        self._model = model
        self._choice = choice
        self._kind = "query" if path is None else kind_of(path, kind)
        self.progress: Callable[[], tuple[int, int]] = lambda: (0, 0)
        self.named = self._names()

    def _names(self) -> Named:
        if self._kind == "jsonl":
            return self._names_of_rows()
        schema = self._table(_ignored).schema
        columns = choose_typed(self._choice, schema)
        texts = text_columns(columns, schema)
        self._columns = columns
        return Named(columns.features, frozenset(texts), columns.outputs, columns.left_out)

    def _names_of_rows(self) -> Named:
        """Return the names of all rows: lines need not all have the same, nor text in the first."""
        names: dict[str, bool] = {}
        outputs: tuple[str, ...] = ()
        for rows in self.rows(_ignored):
            for row in rows if isinstance(rows, list) else ():
                outputs = outputs or tuple(output_names(row.outputs))
                for name, value in row.features.items():
                    names[name] = names.get(name, False) or isinstance(value, str)
        if not names:
            raise ConfigurationError(f"{self.source} holds no row that can be used")
        return Named(tuple(names), frozenset(n for n, text in names.items() if text), outputs)

    def rows(self, reject: Reject) -> Iterator[Rows]:
        """Yield every row; ``reject`` is told of those that cannot be read."""
        if self._kind == "jsonl":
            lines = self._lines(reject)
            self.progress = lines.progress
            for message in lines.messages(_LINES):
                yield [row for _, _, row in decode_json_rows(message.value, model=self._model).rows]
            return
        table = self._table(reject)
        self.progress = table.progress
        names, first = self._columns, 1
        for batch in table.batches(names.all):
            columns = Columns(batch, ColumnShape(batch.schema, batch.schema.names))
            weight = None if names.weight is None else numbers(columns[names.weight], names.weight)
            found = ArrowRows(
                model=self._model,
                rows=batch.num_rows,
                features=Columns(batch, ColumnShape(batch.schema, names.features)),
                outputs={name: numbers(columns[name], name) for name in names.outputs}
                or {DEFAULT_OUTPUT: np.zeros(batch.num_rows)},
                ids=None,
                time=None,
                weight=weight,
            )
            if weight is not None:
                good = np.isfinite(weight) & (weight > 0)
                for place in np.flatnonzero(~good):
                    reject(f"row {first + int(place)}: weight must be above 0 and finite")
                found = found.only(good)
            first += batch.num_rows
            if found.rows:
                yield found

    def _lines(self, reject: Reject) -> JsonLines:
        return JsonLines(
            cast("Path", self._path), self._model, self._choice, times=EventTimes(), reject=reject
        )

    def _table(self, reject: Reject) -> Any:
        if self._path is None:
            return QueryRows(*self._query)
        if self._kind == "csv":
            return CsvFile(self._path, texts=self._choice.texts, reject=reject)
        return ParquetFile(self._path)


def declared(choice: Choice, features: tuple[str, ...], categorical: tuple[str, ...]) -> Choice:
    """Return the choice with what a card declares, where the choice does not say it itself."""
    return replace(
        choice,
        features=choice.features or features or None,
        categorical=tuple(dict.fromkeys([*choice.categorical, *categorical])),
    )


def _ignored(_: str) -> None:
    """Leave what a first look cannot read to the pass that counts."""
