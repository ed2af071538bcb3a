"""The contracts are those of the code: none is stale, AsyncAPI accepts them, real messages keep to them.

``asyncapi-3.0.0.json.gz`` is schemas/3.0.0.json of the npm package @asyncapi/specs 6.11.1, unchanged.
Apache-2.0, Copyright 2016-2025 AsyncAPI Initiative. "This product includes software developed at
AsyncAPI Initiative (http://www.asyncapi.com/)."
"""

from __future__ import annotations

import copy
import gzip
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from contract_samples import Sample, read
from doc_blocks import ROOT, blocks
from jsonschema import Draft7Validator

from attributary.schemas.errors import RejectedError
from attributary.schemas.message import Message
from attributary.schemas.topics import Topics

HERE = Path(__file__).parent
CONTRACTS = ROOT / "docs" / "contracts"
RELEASES = sorted(path.name for path in (HERE / "samples").iterdir())
Schema = dict[str, Any]


@pytest.fixture(scope="module")
def build() -> Any:
    """The script that writes the contracts."""
    spec = importlib.util.spec_from_file_location("build_contracts", CONTRACTS / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there for their types
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def asyncapi() -> Schema:
    found: Schema = json.loads((CONTRACTS / "asyncapi.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def validator(asyncapi: Schema) -> Callable[[str], Draft7Validator]:
    """A validator of one of the document's messages."""

    def of(message: str) -> Draft7Validator:
        payload = asyncapi["components"]["messages"][message]["payload"]
        return Draft7Validator({**payload, "components": asyncapi["components"]})

    return of


def test_the_contracts_are_not_stale(build: Any) -> None:
    stale = [
        path.name
        for path, text in build.generated().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    assert not stale, "run: python docs/contracts/build.py"
    assert set(CONTRACTS.glob("*.json")) == set(build.generated())


def test_the_document_is_asyncapi_3(asyncapi: Schema) -> None:
    definition = json.loads(gzip.decompress((HERE / "asyncapi-3.0.0.json.gz").read_bytes()))
    checked = Draft7Validator(definition)
    assert [error.message for error in checked.iter_errors(asyncapi)] == []
    planted = copy.deepcopy(asyncapi)
    planted["channels"]["drift"]["messages"]["drift"] = {"payload": {"type": "nothing"}}
    planted["operations"]["sendDrift"]["action"] = "shout"
    assert len(list(checked.iter_errors(planted))) == 2


def test_every_topic_and_every_reference_is_there(asyncapi: Schema) -> None:
    addresses = {channel["address"] for channel in asyncapi["channels"].values()}
    assert addresses == set(Topics().model_dump().values())

    def references(part: Any) -> set[str]:
        if isinstance(part, list):
            return {found for one in part for found in references(one)}
        if not isinstance(part, dict):
            return set()
        found = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
        return found | {f for one in part.values() for f in references(one)}

    for reference in references(asyncapi):
        place: Any = asyncapi
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
    for path in CONTRACTS.glob("*.schema.json"):
        schema = json.loads(path.read_text(encoding="utf-8"))
        Draft7Validator.check_schema(schema)
        for reference in references(schema):
            assert reference.removeprefix("#/definitions/") in schema["definitions"]


def json_samples(release: str) -> list[tuple[str, Sample, Any]]:
    """Return the samples that are JSON, but for the dead letters' own content, with their topic."""
    found = []
    for topic, samples in read(release).items():
        for sample in samples:
            letter = topic == "dead-letters" and not (sample.key or "").startswith("retry|")
            if "json" in json.loads(sample.line()) and not letter:
                found.append((topic, sample, json.loads(sample.value)))
    return found


def _camel(name: str) -> str:
    first, *others = name.split("-")
    return first + "".join(word.capitalize() for word in others)


def test_every_kind_of_message_has_a_schema(build: Any) -> None:
    for path in (ROOT / "schemas").glob("[a-z]*.py"):
        importlib.import_module(f"attributary.schemas.{path.stem}")
    assert set(Message.__subclasses__()) == set(build.MESSAGES.values())


@pytest.mark.parametrize("release", RELEASES)
def test_the_samples_of_every_release_keep_to_their_schemas(
    release: str, asyncapi: Schema, validator: Callable[[str], Draft7Validator], build: Any
) -> None:
    by_topic = {
        channel["address"].removeprefix("attributary."): list(channel["messages"])
        for channel in asyncapi["channels"].values()
    }
    alone = {name: Draft7Validator(schema) for name, schema in build.schemas().items()}
    seen = set()
    for topic, sample, value in json_samples(release):
        fits = [
            name
            for name in alone
            if alone[name].is_valid(value) and _camel(name) in by_topic[topic]
        ]
        assert fits == [name for name in fits if validator(_camel(name)).is_valid(value)]
        assert len(fits) == 1, (topic, sample.line())
        seen.add(fits[0])
    assert seen == {*alone}


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("attribution", ("schema",), "attributary.attribution/2"),
        ("attribution", ("features", 0, "direction"), 2),
        ("attribution", ("features", 0, "interval"), [0.1, 0.2, 0.3]),
        ("attribution", ("window", "kind"), "sliding"),
        ("attribution", ("revision",), "many"),
        ("drift", ("features",), None),
        ("model", ("features", 0, "kind"), "ordinal"),
        ("model", ("unknown part",), None),
        ("explanation", ("outcome",), "maybe"),
    ],
)
def test_the_schemas_refuse_what_readers_refuse(
    name: str, path: tuple[str | int, ...], value: Any, build: Any
) -> None:
    schema = build.schemas()[name]
    message = next(
        copy.deepcopy(found)
        for _, _, found in json_samples(RELEASES[-1])
        if isinstance(found, dict) and found.get("schema") == build.MESSAGES[name].SCHEMA
    )
    part = message
    if path == ("unknown part",):
        message["features"][0]["flavour"] = 1
    else:
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = value
    assert not Draft7Validator(schema).is_valid(message)
    with pytest.raises(RejectedError):
        build.MESSAGES[name].from_bytes(json.dumps(message).encode())


def test_unknown_fields_are_allowed_as_readers_allow_them(build: Any) -> None:
    for name, model in build.MESSAGES.items():
        message = next(
            found
            for _, _, found in json_samples(RELEASES[-1])
            if isinstance(found, dict) and found.get("schema") == model.SCHEMA
        )
        later = {**message, "of_a_later_release": [1]}
        assert Draft7Validator(build.schemas()[name]).is_valid(later), name
        assert model.from_bytes(json.dumps(later).encode()) == model.from_bytes(
            json.dumps(message).encode()
        )


def test_the_examples_of_the_docs_keep_to_the_schemas(build: Any) -> None:
    checks = {name: Draft7Validator(schema) for name, schema in build.schemas().items()}
    found = [
        (block, json.loads(block.text))
        for page in ("messages", "models", "tutorial")
        for block in blocks(ROOT / "docs" / f"{page}.md")
        if block.language == "json" and '"..."' not in block.text
    ]
    assert len(found) == 4
    for block, value in found:
        named = value.get("schema", "").partition("/")[0].removeprefix("attributary.")
        name = named or ("row" if isinstance(value["features"], dict) else "model")
        if "…" in block.text:  # a hash that is not written out
            value["artefact"]["sha256"] = "0" * 64
        assert [e.message for e in checks[name].iter_errors(value)] == [], block.place
