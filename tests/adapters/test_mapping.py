"""Mapping files: the language, times, pairs, and errors that name the place."""

from __future__ import annotations

import json
from typing import Any

import pytest

from attributary.schemas.adapters.convert import Converter
from attributary.schemas.adapters.formats import Adapter
from attributary.schemas.adapters.inference import Naming
from attributary.schemas.adapters.mapping import moment, read_mapping
from attributary.schemas.adapters.message import ForeignMessage
from attributary.schemas.adapters.pairing import Place
from attributary.schemas.adapters.path import MISSING, Path
from attributary.schemas.errors import ConfigurationError, RejectedError
from attributary.schemas.row import Row

DOCUMENT = {
    "a": {"b c": [10, {"d": "x"}], "it's": 5, "n": None},
    "s": '{"in": [1, 2]}',
    "rows": [{"v": 1}, {"w": 2}, {"v": 3}],
}
BASE = """
features = "$.features"
[outputs]
y = "$.y"
"""


def _rows(mapping: str, *documents: Any, naming: Naming | None = None, **message: Any) -> list[Row]:
    converter = Converter(Adapter("mapping", naming or Naming(model="m"), read_mapping(mapping)))
    found = []
    for offset, document in enumerate(documents):
        value = ForeignMessage(json.dumps(document).encode(), **message)
        converted = converter.add(value, Place(("t", 0), offset), 0.0, named=True)
        found += [row for group in converted.groups for row in group.rows]
    return found


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$", DOCUMENT),
        ("$.a['b c'][0]", 10),
        ("$.a['b c'][-1].d", "x"),
        ('$["a"]["it\'s"]', 5),
        (r"$.a['it\'s']", 5),
        ("$.a.n", None),
        ("$.s.json().in[1]", 2),
        ("$.rows[*].v", [1, 3]),
        ("@[0]", 7),
        ("header:X-Id", "h1"),
        ("key", "k"),
        ("$.a.z", MISSING),
        ("$.a['b c'][9]", MISSING),
        ("$.a[0]", MISSING),
        ("$.rows.v", MISSING),
        ("$.a.json()", MISSING),
        ("header:none", MISSING),
    ],
)
def test_a_path_finds_what_lies_there(path: str, value: Any) -> None:
    message = ForeignMessage(b"", b"k", {"x-id": b"h1"})
    assert Path.parse(path).find(message, DOCUMENT, [7]) == value


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a.b",
        "$a",
        "$..a",
        "$.",
        "$[?(@.a>1)]",
        "$[1:2]",
        "$['a]",
        "$.a()",
        "header:",
        "$" + ".a" * 33,
    ],
)
def test_a_path_that_cannot_be_read_is_named(path: str) -> None:
    with pytest.raises(ConfigurationError, match="path"):
        Path.parse(path)


def test_one_path_names_an_object_of_features() -> None:
    (row,) = _rows(BASE, {"features": {"a": 1, "b": [2, 3], "c": "red"}, "y": 0.5})
    assert row.features == {"a": 1, "b[0]": 2, "b[1]": 3, "c": "red"}
    assert row.outputs == {"y": 0.5}
    assert row.id == "t/0/0"


def test_constants_stand_ins_model_weight_and_time() -> None:
    mapping = """
    [row]
    model = "$.m"
    weight = { path = "$.w", missing = 2 }
    time = { path = "$.t", format = "%d/%m/%Y %H:%M:%S" }
    id = "header:x-id"
    [features]
    a = "$.a"
    site = { constant = "north" }
    plan = { path = "$.plan", missing = "free" }
    [outputs]
    y = "$.y"
    """
    document = {"m": "own", "a": 1, "y": 2, "t": "31/01/2026 12:00:00"}
    (row,) = _rows(mapping, document, naming=Naming(), headers={"x-id": b"r1"})
    assert (row.model, row.weight, row.id, row.time) == ("own", 2.0, "r1", 1_769_860_800.0)
    assert row.features == {"a": 1, "site": "north", "plan": "free"}


def test_requests_and_responses_of_their_own_are_paired() -> None:
    mapping = """
    features = "$.x"
    outputs = "$.p"
    [pair]
    id = "$.ref"
    side = "$.kind"
    request = "ask"
    response = "say"
    """
    (row,) = _rows(
        mapping,
        {"kind": "ask", "ref": 7, "x": {"a": 1}},
        {"kind": "noise"},
        {"kind": "say", "ref": 7, "p": [0.25, 0.75]},
    )
    assert (row.features, row.outputs, row.id) == ({"a": 1}, [0.25, 0.75], "7")


@pytest.mark.parametrize(
    ("value", "form", "seconds"),
    [
        (1_700_000_000_123, "milliseconds", 1_700_000_000.123),
        ("1700000000", "seconds", 1_700_000_000.0),
        (1_700_000_000_000_000, "microseconds", 1_700_000_000.0),
        (1_700_000_000_000_000_000, "nanoseconds", 1_700_000_000.0),
        ("2026-01-31T12:00:00Z", None, "2026-01-31T12:00:00Z"),
        ("2026-01-31 12:00 +0200", "%Y-%m-%d %H:%M %z", 1_769_853_600.0),
    ],
)
def test_a_time_is_read_in_its_format(value: Any, form: str | None, seconds: Any) -> None:
    assert moment(value, form) == seconds


@pytest.mark.parametrize("value", [None, True, "x", [], "inf", 10**400])
def test_a_time_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(RejectedError, match="time"):
        moment(value, "milliseconds")


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"y": 1}, r"features: expected an object or a list at \$\.features"),
        ({"features": {"a": 1}}, r"outputs\.y: expected a value at \$\.y, found none"),
        ({"features": 3, "y": 1}, r"\$\.features"),
        ([], r"\$\.features"),
    ],
)
def test_a_refusal_names_the_path(document: Any, said: str) -> None:
    with pytest.raises(RejectedError, match=said):
        _rows(BASE, document)


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ("x = ", "not TOML"),
        ("features = '$.a'", r"no \[outputs\]"),
        (BASE + "[rows]\na='$.a'", "unknown 'rows'"),
        (BASE + "[row]\ntimes='$.a'", "unknown 'times'"),
        (BASE + "[row]\neach='$.a'", r"end it with \[\*\]"),
        (BASE + "[row]\nid='$.a[*]'", "belongs in row.each"),
        (BASE + "[row]\nweight=3", "a constant is"),
        (BASE + "[row]\ntime={path='$.t', format='iso'}", "expected rfc3339"),
        (BASE + "[row]\nid={path='$.t', format='seconds'}", "of row.time alone"),
        (BASE + "[row]\nskip_unless='$.t'", "equals"),
        (BASE + "[row]\nid={missing=1}", "neither a path nor a constant"),
        (BASE + "[pair]\nid='$.a'", "lacks request, response, side"),
        ("row = 3" + BASE, "must be a table"),
    ],
)
def test_a_mapping_file_that_cannot_work_is_refused(mapping: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        read_mapping(mapping)
