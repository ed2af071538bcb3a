"""Instances from files: JSON, JSON lines, CSV, and what is said of files that are none."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from attributary.schemas.card import Feature, ModelCard
from attributary.schemas.errors import ConfigurationError
from attributary.service.instance_files import read_instances

CARD = ModelCard(
    model="m",
    features=[Feature(name="age"), Feature(name="plan", kind="categorical"), Feature(name="on")],
)


def read(tmp_path: Path, text: str | bytes, card: ModelCard | None = CARD) -> list[dict[str, Any]]:
    path = tmp_path / "rows"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [dict(row.features) for row in read_instances(path, card)]


ROW = {"age": 41.0, "plan": "pro", "on": None}


@pytest.mark.parametrize(
    "text",
    [
        '{"age": 41, "plan": "pro", "on": null}',
        '[{"age": 41, "plan": "pro", "on": null}]',
        '{"model": "m", "id": 7, "outputs": 1, "features": {"age": 41, "plan": "pro", "on": null}}',
        "age,plan,on\n41,pro,\n",
        "\ufeffplan,other,age,on\r\npro,x,41.0,\r\n",
        'age,plan,on\n" 41",pro,""\n',
        "age, plan , on\n41, pro,\n",
        "note,age,plan,on,note\nx,41,pro,,y\n",
    ],
)
def test_one_row_in_every_form(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == [ROW]


def test_several_rows(tmp_path: Path) -> None:
    lines = '{"age": 1, "plan": "a", "on": true}\n\n{"age": 2, "plan": "b", "on": false}\n'
    expected = [{"age": 1.0, "plan": "a", "on": True}, {"age": 2.0, "plan": "b", "on": False}]
    assert read(tmp_path, lines) == expected
    assert read(tmp_path, "age,plan,on\n1,a,true\n2,b,False\n") == expected


def test_the_card_says_what_is_a_number(tmp_path: Path) -> None:
    text = "age,plan,on\n1,2,3\n"
    assert read(tmp_path, text) == [{"age": 1.0, "plan": "2", "on": 3.0}]
    assert read(tmp_path, text, None) == [{"age": 1.0, "plan": 2.0, "on": 3.0}]
    assert read(tmp_path, "age,plan,on\n1,x,\n", None) == [{"age": 1.0, "plan": "x", "on": None}]


def test_a_name_with_spaces_of_its_own_is_kept(tmp_path: Path) -> None:
    card = ModelCard(model="m", features=[Feature(name=" age"), Feature(name="age")])
    assert read(tmp_path, " age,age\n1,2\n", card) == [{" age": 1.0, "age": 2.0}]


def test_nan_is_missing(tmp_path: Path) -> None:
    expected = [{"age": None, "plan": "pro", "on": None}]
    assert read(tmp_path, '{"age": NaN, "plan": "pro", "on": null}') == expected
    assert read(tmp_path, "age,plan,on\nnan,pro,\n") == expected


def test_an_id_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "row.json"
    path.write_text('{"id": 7, "features": {"age": 1}}')
    assert read_instances(path, CARD)[0].id == "7"


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(b'{"age": 1}')

    monkeypatch.setattr(sys, "stdin", Stdin)
    assert read_instances(Path("-"), CARD)[0].features == {"age": 1.0}
    with pytest.raises(ConfigurationError, match="standard input is empty"):
        read_instances(Path("-"), CARD)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("[]", "holds no row"),
        ("age,plan,on\n", "holds no row"),
        ("{broken", "neither JSON nor JSON lines"),
        ('{"a":1}\n{broken', "neither JSON nor JSON lines"),
        ("[1]", "row 0: expected an object of features, got 1"),
        ('[{"age":1},{"age":[1]}]', "row 1: feature 'age' must be a number"),
        ("{}", "row 0: features"),
        ('{"age": Infinity}', "row 0: feature 'age' is infinite; send a finite number, or null"),
        ('{"age": 1}\n{"age": -1e999}', "row 1: feature 'age' is infinite"),
        ("age,plan,on\n1,pro,2\ninf,pro,1\n", "row 1: feature 'age' is infinite"),
        ('{"age":' + "[" * 100_000, "is nested too deeply"),
        ("[" * 900 + "]" * 900, "row 0: expected an object of features, got [[["),
        ('{"age": 1, "plan": "pro", "age": 2}', "one object has 'age' twice"),
        ('{"age": 1}\n{"age": 1, "age": 2}', "one object has 'age' twice"),
        ("age,plan,on,age\n1,pro,2,3\n", "names the column 'age' twice"),
        ("age,plan,on, age\n1,pro,2,3\n", "names the column 'age' twice"),
        ("age;plan;on\n1;pro;2\n", "it has ['age;plan;on']: separate them by commas"),
        ("x,y\n1,2\n", "none of its columns is a feature of the model"),
        ("age,plan,on\n1,pro\n", "row 0: expected 3 fields"),
        ("age,plan,on\n1,pro,2,3\n", "row 0: expected 3 fields"),
        ("age,plan,on\nold,pro,1\n", "feature 'age' is numeric, got 'old'"),
        ('age,plan,on\n"1,pro,1\n', "neither JSON nor CSV"),
        (b"\xff\xfe\x00", "expected UTF-8 text"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, text: str | bytes, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(tmp_path, text)
    assert said in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        read_instances(tmp_path / "none.json", CARD)
