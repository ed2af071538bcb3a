"""Builds the contracts from the code: a JSON Schema of every JSON message, and one AsyncAPI 3 document.

Run ``python docs/contracts/build.py``; tests/contracts fails where a file is stale. The schemas are JSON
Schema draft 7, which AsyncAPI's own schema objects extend.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from pydantic.json_schema import models_json_schema

from attributary.schemas.arrow import ARROW_CONTENT
from attributary.schemas.attribution import WindowAttribution, WindowDrift
from attributary.schemas.card import ModelCard
from attributary.schemas.context import CLOUD_EVENTS_PREFIX, CONTEXT_HEADERS
from attributary.schemas.dead_letter import HEADER_PREFIX, RETRY_OF_HEADER
from attributary.schemas.errors import Reason
from attributary.schemas.explanation import (
    FINAL,
    KIND_HEADER,
    ORIGIN_HEADER,
    PROGRESS,
    Explanation,
    Progress,
)
from attributary.schemas.grid import GridRecord
from attributary.schemas.manifest import Manifest
from attributary.schemas.message import Message
from attributary.schemas.request import DEADLINE_HEADER, Cancellation, ExplanationRequest
from attributary.schemas.retry_marker import MARKER_HEADER, RetryMarker
from attributary.schemas.row import (
    CONTENT_HEADER,
    MAX_NAME,
    MAX_WEIGHT,
    MIN_WEIGHT,
    MODEL_HEADER,
    SCHEMA,
    Row,
)
from attributary.schemas.sketch import SketchHeader
from attributary.schemas.topics import Topics
from attributary.schemas.unique_information import UNIQUE_INFORMATION, UniqueInformationRun
from attributary.service.settings import TopicLayout
from attributary.service.topics import topic_specs

HERE = Path(__file__).parent
DRAFT = "http://json-schema.org/draft-07/schema#"
Schema = dict[str, Any]

#: The file of each message's schema. Users write the first three, and may leave ``schema`` out.
WRITTEN_BY_USERS: dict[str, type[Message]] = {
    "model": ModelCard,
    "request": ExplanationRequest,
    "cancellation": Cancellation,
}
MESSAGES: dict[str, type[Message]] = {
    **WRITTEN_BY_USERS,
    "grid": GridRecord,
    "manifest": Manifest,
    "attribution": WindowAttribution,
    "drift": WindowDrift,
    "unique-information": UniqueInformationRun,
    "progress": Progress,
    "explanation": Explanation,
    "retry": RetryMarker,
}
BINARY = {"type": "string", "contentEncoding": "base64", "description": "Bytes, not JSON."}


@dataclass(frozen=True)
class Channel:
    """A topic as this application sees it: what travels on it, which way, and under which key."""

    messages: tuple[str, ...]
    description: str
    receives: bool = False
    sends: bool = False


KEYS = {
    "model": "the model",
    "grid": "the model, the epoch and the proposal's own id",
    "sketch": "the model, source partition, block and pane",
    "manifest": "m|, the source partition and block",
    "attribution": "the model",
    "drift": "the model",
    "uniqueInformation": "the model",
    "request": "the request's id",
    "cancellation": "the request's id",
    "explanation": "the request's id",
    "progress": "p| and the request's id",
    "deadLetter": "the message's own",
    "retry": "retry| and where the message lies",
}
CHANNELS = {
    "rows": Channel(("row", "rowsArrow"), "What models saw and what they said.", receives=True),
    "models": Channel(("model",), "Model cards; the newest of a model holds.", receives=True),
    "grids": Channel(("grid",), "The grid of each epoch; the first one holds.", True, True),
    "sketches": Channel(
        ("sketch", "manifest"), "Pane sketches, and manifests of blocks (key m|…).", True, True
    ),
    "snapshots": Channel(("snapshot",), "State of merge, for merge alone.", True, True),
    "attributions": Channel(
        ("attribution", "uniqueInformation"),
        "One message per window and output of a model; unique information by schedule.",
        sends=True,
    ),
    "drift": Channel(("drift",), "One per final window, output and reference.", sends=True),
    "requests": Channel(("request",), "Explanations that are asked for.", receives=True),
    "requests_high": Channel(("request",), "The same, answered before the others.", receives=True),
    "explanations": Channel(
        ("explanation", "progress"), "Final answers, and progress (key p|…).", True, True
    ),
    "cancellations": Channel(("cancellation",), "Requests that are taken back.", receives=True),
    "dead_letters": Channel(
        ("deadLetter", "retry"), "What could not be used; claims of retries.", True, True
    ),
}


def schemas() -> dict[str, Schema]:
    """Return the schema of every JSON message by name, self-contained."""
    found = {name: _standalone(name, model) for name, model in MESSAGES.items()}
    found["row"] = {"$schema": DRAFT, "title": "Row, or an array of rows", **_rows()}
    return found


def _standalone(name: str, model: type[Message]) -> Schema:
    _, whole = models_json_schema(
        [(model, "validation")], ref_template="#/definitions/{model}", by_alias=True
    )
    parts = {part: _draft7(schema) for part, schema in whole["$defs"].items()}
    main = _message(name, model, parts.pop(model.__name__))
    return {"$schema": DRAFT, **main, **({"definitions": parts} if parts else {})}


def _message(name: str, model: type[Message], schema: Schema) -> Schema:
    """Return a message's schema with the one value that its field ``schema`` may have."""
    properties = {**schema["properties"], "schema": {"const": model.SCHEMA}}
    required = list(schema.get("required", []))
    if name not in WRITTEN_BY_USERS:
        required = ["schema", *required]
    return {**schema, "title": model.SCHEMA, "properties": properties, "required": required}


def _rows() -> Schema:
    schema = msgspec.json.schema(Row)["$defs"]["Row"]
    properties: dict[str, Schema] = {name: _draft7(of) for name, of in schema["properties"].items()}
    names = {"minLength": 1, "maxLength": MAX_NAME}
    properties["features"]["propertyNames"] = names
    for kind in properties["features"]["additionalProperties"]["anyOf"]:
        if kind["type"] == "string":
            kind["maxLength"] = MAX_NAME
    for kind in properties["outputs"]["anyOf"]:
        if kind["type"] == "object":
            kind["propertyNames"] = names
    properties["weight"] |= {"minimum": MIN_WEIGHT, "maximum": MAX_WEIGHT}
    properties["schema"] = {"enum": [SCHEMA, None]}
    row = {
        "title": SCHEMA,
        "description": _prose(schema["description"]),
        "type": "object",
        "properties": properties,
        "required": schema["required"],
    }
    array = {"type": "array", "items": row, "minItems": 1}
    return {"oneOf": [row, array]}


def _draft7(schema: Any) -> Any:
    """Return a schema of pydantic's or msgspec's (draft 2020-12) as draft 7."""
    if isinstance(schema, list):
        return [_draft7(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    # Titles repeat the names; a field that is called so holds a schema.
    found = {
        key: _draft7(part)
        for key, part in schema.items()
        if key != "discriminator" and not (key == "title" and isinstance(part, str))
    }
    if "prefixItems" in found:
        found["items"] = found.pop("prefixItems")
    if isinstance(found.get("description"), str):
        found["description"] = _prose(found["description"])
    return found


def _prose(text: str) -> str:
    """Return a docstring as one paragraph of plain text."""
    return re.sub(r"\s+", " ", text.replace("``", "`")).strip()


def asyncapi() -> Schema:
    """Return the AsyncAPI document."""
    specs = {spec.role: spec for spec in topic_specs(Topics(), TopicLayout())}
    channels: Schema = {}
    operations: Schema = {}
    for role, channel in CHANNELS.items():
        name = _camel(role)
        channels[name] = {
            "address": specs[role].name,
            "description": channel.description,
            "messages": {m: {"$ref": f"#/components/messages/{m}"} for m in channel.messages},
            "bindings": {
                "kafka": {
                    "partitions": specs[role].partitions,
                    "topicConfiguration": _kafka(specs[role].configs),
                }
            },
        }
        for action, does in (("receive", channel.receives), ("send", channel.sends)):
            if does:
                operations[f"{action}{name[0].upper()}{name[1:]}"] = {
                    "action": action,
                    "channel": {"$ref": f"#/channels/{name}"},
                }
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Attributary",
            "version": version("attributary"),
            "description": "Rows of production models in; which features move their outputs, "
            "how surely, and whether that drifts, out. Topics have the default prefix.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {"messages": _messages(), "schemas": _components()},
    }


def _components() -> Schema:
    """Return all schemas of the document, each part once."""
    _, whole = models_json_schema(
        [(model, "validation") for model in MESSAGES.values()],
        ref_template="#/components/schemas/{model}",
    )
    parts: Schema = {part: _draft7(schema) for part, schema in whole["$defs"].items()}
    for name, model in MESSAGES.items():
        parts[model.__name__] = _message(name, model, parts[model.__name__])
    parts["Rows"] = _rows()
    header = msgspec.json.schema(SketchHeader)["$defs"]["SketchHeader"]
    parts["SketchHeader"] = _draft7(header)
    return parts


def _messages() -> Schema:
    text = {"type": "string"}
    found: Schema = {}
    for name, model in MESSAGES.items():
        found[_camel(name)] = {
            "title": model.SCHEMA,
            "summary": _prose((model.__doc__ or "").strip().split("\n\n")[0]),
            "payload": {"$ref": f"#/components/schemas/{model.__name__}"},
        }
    found["row"] = {
        "title": SCHEMA,
        "summary": "One row as JSON, or an array of rows.",
        "payload": {"$ref": "#/components/schemas/Rows"},
        "headers": _headers(**{CONTENT_HEADER: text, MODEL_HEADER: text}),
    }
    found["rowsArrow"] = {
        "title": "Rows as an Arrow IPC stream",
        "summary": "A column per feature and output; _id, _time and _weight; names in the schema's "
        "metadata attributary.model and attributary.outputs.",
        "contentType": ARROW_CONTENT,
        "payload": BINARY,
        "headers": _headers(**{CONTENT_HEADER: {"const": ARROW_CONTENT}, MODEL_HEADER: text}),
    }
    found["sketch"] = {
        "title": "Pane sketch, version 1",
        "summary": "Magic ATSK, a byte of version, the header's length as uint32, the header as JSON "
        "(schema SketchHeader), and the accumulators.",
        "contentType": "application/octet-stream",
        "payload": BINARY,
    }
    found["snapshot"] = {
        "title": "Snapshot of merge's state, version 1",
        "summary": "Read by merge alone; one that cannot be read is passed over.",
        "contentType": "application/octet-stream",
        "payload": BINARY,
    }
    found["deadLetter"] = {
        "title": "Dead letter",
        "summary": "A message's key, value and headers as they came, and why it was rejected.",
        "contentType": "application/octet-stream",
        "payload": BINARY,
        "headers": _headers(
            required=["topic", "partition", "offset", "reason", "message", "first-seen", "rows"],
            **{
                HEADER_PREFIX + name: text
                for name in (
                    "topic",
                    "partition",
                    "offset",
                    "message",
                    "first-seen",
                    "rows",
                    "count",
                )
            },
            **{
                HEADER_PREFIX + "reason": {"enum": [reason.value for reason in Reason]},
                RETRY_OF_HEADER: text,
            },
        ),
    }
    for name, header in (
        ("request", DEADLINE_HEADER),
        ("explanation", ORIGIN_HEADER),
        ("retry", MARKER_HEADER),
    ):
        found[name]["headers"] = _headers(**{header: text})
    for name, key in KEYS.items():
        found[name]["bindings"] = {"kafka": {"key": {"type": "string", "description": key}}}
    for name, kind in (
        ("explanation", FINAL.decode()),
        ("progress", PROGRESS.decode()),
        ("uniqueInformation", UNIQUE_INFORMATION.decode()),
    ):
        held = found[name].setdefault("headers", _headers())
        held["properties"][KIND_HEADER] = {"const": kind}
    for name in ("request", "explanation", "progress"):
        headers = found[name]["headers"]
        headers["properties"] |= dict.fromkeys(CONTEXT_HEADERS, text)
        headers["patternProperties"] = {f"^{CLOUD_EVENTS_PREFIX}": text}
    return found


def _headers(required: list[str] | None = None, **properties: Schema) -> Schema:
    found: Schema = {"type": "object", "properties": properties}
    if required:
        found["required"] = [HEADER_PREFIX + name for name in required]
    return found


def _kafka(configs: Any) -> Schema:
    """Return Kafka's settings of a topic as AsyncAPI's Kafka binding types them."""
    typed: Schema = {"cleanup.policy": configs["cleanup.policy"].split(",")}
    for key in ("retention.ms", "max.message.bytes"):
        if key in configs:
            typed[key] = int(configs[key])
    return typed


def _camel(role: str) -> str:
    first, *others = re.split("[_-]", role)
    return first + "".join(word.capitalize() for word in others)


def generated() -> dict[Path, str]:
    """Return every generated file and what it must hold."""
    files = {HERE / f"{name}.schema.json": schema for name, schema in schemas().items()}
    files[HERE / "asyncapi.json"] = asyncapi()
    return {
        path: json.dumps(found, indent=2, ensure_ascii=False) + "\n"
        for path, found in files.items()
    }


def main() -> int:
    """Write the files; with ``--check`` return 1 where one is stale."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="say what is stale, write nothing")
    asked = parser.parse_args()
    files = generated()
    stale = {
        path: text
        for path, text in files.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in stale.items():
        print(f"{'stale' if asked.check else 'written'}: {path.name}")
        if not asked.check:
            path.write_text(text, encoding="utf-8")
    for path in set(HERE.glob("*.json")) - set(files):
        print(f"{'left over' if asked.check else 'removed'}: {path.name}")
        stale[path] = ""
        if not asked.check:
            path.unlink()
    return int(asked.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
