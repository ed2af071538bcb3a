"""Files of what other systems logged: the rows that they hold, and what is said of the rest."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from foreign import MAPPING, NAMING, SAMPLES, adapter, native, sample

from attributary.schemas.adapters.formats import FORMATS
from attributary.schemas.row import Row, decode_json_rows, event_time_ms
from attributary.service.cli import cli
from attributary.service.foreign_files import ForeignFile
from attributary.service.foreign_names import FOREIGN
from attributary.service.foreign_options import build_adapter


def _read(path: Path, name: str) -> tuple[list[Row], list[str], dict[str, int]]:
    problems: list[str] = []
    file = ForeignFile(path, adapter(name), reject=problems.append)
    rows = [
        row
        for message in file.messages(10)
        for _, _, row in decode_json_rows(message.value, model=None).rows
    ]
    assert file.progress()[1] > 0
    return sorted(rows, key=lambda row: event_time_ms(row.time, 0)), problems, file.skipped()


def test_the_help_names_every_format_that_there_is() -> None:
    assert tuple(FORMATS) == FOREIGN


@pytest.mark.parametrize(
    ("name", "skipped"),
    [
        ("kserve", {"other_component": 1}),
        ("mlflow", {"failed": 1}),
        ("bentoml", {"schema_line": 1}),
        ("mapping", {"not_wanted": 1}),
    ],
)
def test_a_file_holds_the_rows_and_skips_the_rest(name: str, skipped: dict[str, int]) -> None:
    rows, problems, found = _read(SAMPLES / f"{name}.jsonl", name)
    assert [row.features for row in rows] == [row.features for row in native()]
    assert (problems, found) == ([], skipped)


def test_an_inference_table_may_be_parquet(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in sample("inference-table")]
    path = tmp_path / "payload.parquet"
    pq.write_table(pa.Table.from_pylist(lines), path)
    rows, problems, skipped = _read(path, "inference-table")
    assert [(row.id, row.features) for row in rows] == [(r.id, r.features) for r in native()]
    assert (problems, skipped) == ([], {"failed": 1})


def test_what_has_no_other_half_or_cannot_be_read_is_said(tmp_path: Path) -> None:
    lines = sample("kserve")
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join([lines[0], b"{broken", *lines[2:]])))
    rows, problems, _ = _read(path, "kserve")
    assert len(rows) == 23
    assert len(problems) == 2
    assert problems[0].startswith("line 2: the line is not JSON")
    assert problems[1] == "half of an inference: unanswered"


@pytest.fixture
def command(tmp_path: Path) -> Callable[..., Result]:
    """``attributary publish`` with a file that is there; it must fail before it needs a broker."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"{}\n")

    def call(*arguments: str) -> Result:
        return CliRunner().invoke(cli, ["publish", str(path), *arguments])

    return call


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--model"),
        (("--format", "bentoml", "--model", "m"), "name the columns .* with --outputs"),
        (("--format", "mapping", "--model", "m"), "--mapping FILE go together"),
        (("--format", "kserve", "--mapping", "none.toml"), "none.toml: No such file"),
        (("--format", "kserve", "--id-column", "a"), "--id-column is of CSV, JSONL and Parquet"),
        (("--format", "kserve", "--as", "arrow"), "travel as json"),
        (("--model", "m", "--only", "a"), "belong to the --format of another system"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    command: Callable[..., Result], arguments: tuple[str, ...], said: str
) -> None:
    result = command(*arguments)
    assert result.exit_code != 0
    with pytest.raises(Exception, match=said):
        raise result.exception or AssertionError(result.output)


def test_a_mapping_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.toml"
    path.write_text(MAPPING)
    built = build_adapter(
        "mapping",
        model="churn",
        features=NAMING.features,
        outputs=NAMING.outputs,
        mapping=path,
    )
    assert built == adapter("mapping")
