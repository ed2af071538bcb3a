"""The rows of a DuckDB query as record batches, as the database makes them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from attributary.schemas.errors import ConfigurationError

_BATCH_ROWS = 16_384


class QueryRows:
    """A query over a database file, which is opened for reading only, or over files that it names itself.

    ``schema`` is there at once; the rows can be read once. ConfigurationError: DuckDB refuses the query, or
    it returns no rows.
    """

    def __init__(self, query: str, database: Path | None = None) -> None:
        import duckdb

        self._errors = (duckdb.Error, pa.ArrowException, OSError)
        self._done = 0
        if database is not None and not database.is_file():
            raise ConfigurationError(f"--database {database}: there is no such file")
        try:
            self._connection = (
                duckdb.connect() if database is None else duckdb.connect(database, read_only=True)
            )
            statements = self._connection.extract_statements(query)
            if not statements or statements[-1].type != duckdb.StatementType.SELECT:
                raise ConfigurationError("--query returns no rows: it must end with a SELECT")
            self._relation = self._connection.sql(query)
            self._reader = self._relation.to_arrow_reader(_BATCH_ROWS)
        except self._errors as error:
            raise self._refused(error) from None
        self.schema: Any = self._reader.schema
        names = self.schema.names
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigurationError(
                f"--query names a column twice: {', '.join(twice)}; rename it with AS"
            )

    def batches(self, columns: Collection[str]) -> Iterator[Any]:
        """Yield the rows with these columns."""
        try:
            for batch in self._reader:
                self._done += batch.num_rows
                yield batch.select(list(columns))
        except self._errors as error:
            raise self._refused(error) from None
        finally:
            self._reader.close()
            self._connection.close()

    def progress(self) -> tuple[int, int]:
        """Return (rows read, 0): how many there are is not known before they have been read."""
        return self._done, 0

    def _refused(self, error: Exception) -> ConfigurationError:
        return ConfigurationError(f"--query: {' '.join(str(error).split())}")
