"""The examples of docs/adapters.md are what the formats read, and nothing is left out of the page."""

from __future__ import annotations

import re

import pytest
from doc_blocks import ROOT, Block, blocks
from foreign import FEATURES, OUTPUTS

from attributary.schemas.adapters.convert import Converter
from attributary.schemas.adapters.formats import FORMATS, Adapter
from attributary.schemas.adapters.inference import Naming
from attributary.schemas.adapters.mapping import read_mapping
from attributary.schemas.adapters.pairing import Place
from attributary.schemas.adapters.recorded import read_recorded
from attributary.schemas.row import Row, event_time_ms
from attributary.workers.adapt.options import AdaptOptions

PAGE = ROOT / "docs" / "adapters.md"


def _blocks(name: str, language: str) -> list[Block]:
    return [b for b in blocks(PAGE) if b.heading == name and b.language == language]


@pytest.mark.parametrize("name", FORMATS)
def test_the_example_of_a_format_is_the_row_that_it_shows(name: str) -> None:
    mapping = read_mapping(_blocks(name, "toml")[0].text) if name == "mapping" else None
    features = (*FEATURES, "site") if name == "mapping" else FEATURES
    converter = Converter(Adapter(name, Naming("churn", features, OUTPUTS), mapping))
    (example,) = _blocks(name, "json")
    rows: list[Row] = []
    for offset, line in enumerate(example.text.encode().splitlines()):
        found = converter.add(read_recorded(line), Place(("t", 0), offset), 0.0, named=False)
        rows += [row for group in found.groups for row in group.rows]
    (row,) = rows
    expected = {"age": 41, "income": 30000.5, "tenure": 2}
    assert row.features == (expected | {"site": "north"} if name == "mapping" else expected)
    assert row.outputs == {"p0": 0.7, "p1": 0.3}
    assert event_time_ms(row.time, 0) == 1_769_860_800_000
    assert row.id == (None if name == "bentoml" else "7f1c")


def test_every_mapping_of_the_page_can_be_read() -> None:
    first, second = (read_mapping(block.text) for block in _blocks("mapping", "toml"))
    assert first.pair is None
    assert second.pair is not None


def test_the_page_names_the_settings_as_they_are() -> None:
    named = re.findall(r"`adapt\.(\w+)` \(([\d,]+)( s| MiB)?", PAGE.read_text())
    options = AdaptOptions()
    assert {name for name, _, _ in named} >= {"pair_seconds", "pair_halves", "pair_bytes"}
    for name, number, unit in named:
        value = int(number.replace(",", "")) * (2**20 if unit == " MiB" else 1)
        assert getattr(options, name) == value, name
