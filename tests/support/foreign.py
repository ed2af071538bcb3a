"""The recorded messages of other systems, and the rows that they are."""

from __future__ import annotations

import json
from pathlib import Path

from attributary.schemas.adapters.convert import Converter
from attributary.schemas.adapters.formats import Adapter
from attributary.schemas.adapters.inference import Naming
from attributary.schemas.adapters.mapping import read_mapping
from attributary.schemas.adapters.pairing import Place
from attributary.schemas.adapters.recorded import read_recorded
from attributary.schemas.row import Row, decode_json_rows

SAMPLES = Path(__file__).parent.parent / "adapters" / "samples"
FEATURES = ("age", "income", "tenure")
OUTPUTS = ("p0", "p1")
NAMING = Naming(model="churn", features=FEATURES, outputs=OUTPUTS)
MAPPING = """
[row]
each = "$.items[*]"
id = "$.call.ref"
time = { path = "$.at", format = "milliseconds" }
skip_unless = { path = "$.kind", equals = "scored" }

[features]
age = "@.who.age"
income = "@.who.money['in']"
tenure = "@.who.money.since"

[outputs]
p0 = "@.said.json()[0]"
p1 = "@.said.json()[-1]"
"""


def adapter(name: str, naming: Naming = NAMING) -> Adapter:
    """Return the adapter of a format."""
    return Adapter(name, naming, read_mapping(MAPPING) if name == "mapping" else None)


def sample(name: str) -> list[bytes]:
    """Return the recorded lines of a format."""
    return (SAMPLES / f"{name}.jsonl").read_bytes().splitlines()


def converted(name: str, lines: list[bytes] | None = None) -> tuple[Converter, list[Row]]:
    """Return what the lines are as rows, in the order in which they come, and the converter after them."""
    converter = Converter(adapter(name))
    rows: list[Row] = []
    for offset, line in enumerate(sample(name) if lines is None else lines):
        found = converter.add(read_recorded(line), Place(("t", 0), offset), 0.0, named=True)
        assert not found.errors, found.errors
        rows += [row for group in found.groups for row in group.rows]
    return converter, rows


def native() -> list[Row]:
    """Return the same rows as they are published without an adapter."""
    return [
        decode_json_rows(json.dumps(json.loads(line)).encode()).rows[0][2]
        for line in sample("native")
    ]
