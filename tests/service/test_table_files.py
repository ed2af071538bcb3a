"""Compressed CSV files: read whole, or refused in one line wherever they are damaged."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from attributary.schemas.errors import ConfigurationError
from attributary.service.table_files import CsvFile

ROWS = 400_000  # two blocks of text, and more


def rejected(row: str) -> None:
    raise AssertionError(row)


@pytest.fixture(scope="module")
def packed() -> bytes:
    lines = [f"{number},{number * 7919 % 10007}" for number in range(ROWS)]
    return gzip.compress("\n".join(["a,y", *lines]).encode(), compresslevel=1)


def rows(path: Path) -> int:
    file = CsvFile(path, texts=[], reject=rejected)
    return sum(len(batch) for batch in file.batches(["a", "y"]))


def test_a_compressed_table_is_read_whole(tmp_path: Path, packed: bytes) -> None:
    path = tmp_path / "rows.csv.gz"
    path.write_bytes(packed)
    assert rows(path) == ROWS


@pytest.mark.parametrize("share", [0.0, 0.5, 0.95])
def test_damage_is_one_line_that_names_the_file(
    tmp_path: Path, packed: bytes, share: float
) -> None:
    path = tmp_path / "rows.csv.gz"
    at = int(share * len(packed))
    for damaged in (packed[:at] + b"\xff" * 64 + packed[at + 64 :], packed[: max(at, 1)]):
        path.write_bytes(damaged)
        with pytest.raises(ConfigurationError, match=r"rows\.csv\.gz"):
            rows(path)
