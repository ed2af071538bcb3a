"""Avro, Protobuf and JSON values by a schema registry are the rows that native ones are."""

from __future__ import annotations

import base64
import io
import json
import random
from collections.abc import Callable
from typing import Any

import fastavro
import pytest
from aiokafka import ConsumerRecord
from foreign import FEATURES, OUTPUTS, native
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from schema_registry import Registry

from attributary.schemas.adapters.convert import Converter
from attributary.schemas.adapters.formats import Adapter
from attributary.schemas.adapters.framed import schema_id, to_json
from attributary.schemas.adapters.inference import Naming
from attributary.schemas.adapters.mapping import read_mapping
from attributary.schemas.dead_letter import DeadLetter
from attributary.schemas.errors import BrokerError, ConfigurationError, RejectedError
from attributary.schemas.row import Row, decode_json_rows, event_time_ms
from attributary.schemas.topics import Topics
from attributary.workers.adapt.core import AdaptCore, Work
from attributary.workers.adapt.registry import SchemaRegistry

MAPPING = """
features = "$.seen"
outputs = "$.said"
[row]
id = "$.ref"
time = { path = "$.at", format = "milliseconds" }
"""
SEEN = {
    "type": "record",
    "name": "Seen",
    "fields": [{"name": name, "type": "double"} for name in FEATURES],
}
SCORED = {
    "type": "record",
    "name": "Scored",
    "fields": [
        {"name": "ref", "type": "string"},
        {"name": "at", "type": "long"},
        {"name": "seen", "type": "Seen"},
        {"name": "said", "type": {"type": "map", "values": "double"}},
    ],
}
_Field = descriptor_pb2.FieldDescriptorProto


def _proto_files() -> tuple[Any, Any]:
    """Return a file that imports another one, as descriptors."""
    seen = descriptor_pb2.FileDescriptorProto(name="seen.proto", package="p", syntax="proto3")
    message = seen.message_type.add(name="Seen")
    for number, name in enumerate(FEATURES, 1):
        message.field.add(name=name, number=number, type=_Field.TYPE_DOUBLE, label=1)
    main = descriptor_pb2.FileDescriptorProto(
        name="scored.proto", package="p", syntax="proto3", dependency=["seen.proto"]
    )
    main.message_type.add(name="Other")
    scored = main.message_type.add(name="Scored")
    scored.field.add(name="ref", number=1, type=_Field.TYPE_STRING, label=1)
    scored.field.add(name="at", number=2, type=_Field.TYPE_INT64, label=1)
    scored.field.add(name="seen", number=3, type=_Field.TYPE_MESSAGE, type_name=".p.Seen", label=1)
    scored.field.add(
        name="said", number=4, type=_Field.TYPE_MESSAGE, type_name=".p.Scored.SaidEntry", label=3
    )
    entry = scored.nested_type.add(name="SaidEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_Field.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=_Field.TYPE_DOUBLE, label=1)
    return seen, main


def _answers() -> dict[str, Any]:
    seen, main = _proto_files()
    avro = {"name": "Seen", "subject": "seen value", "version": 3}
    proto = {"name": "seen.proto", "subject": "seen-proto", "version": 1}

    def serialized(file: Any) -> str:
        return base64.b64encode(file.SerializeToString()).decode()

    return {
        "/schemas/ids/1": {"schema": json.dumps(SCORED), "references": [avro]},
        "/subjects/seen%20value/versions/3": {"schema": json.dumps(SEEN)},
        "/schemas/ids/2": {"schema": "…", "schemaType": "PROTOBUF", "references": [proto]},
        "/schemas/ids/2?format=serialized": {
            "schema": serialized(main),
            "schemaType": "PROTOBUF",
            "references": [proto],
        },
        "/subjects/seen-proto/versions/1?format=serialized": {"schema": serialized(seen)},
        "/schemas/ids/3": {"schema": "{}", "schemaType": "JSON"},
        "/schemas/ids/4": {"schema": '{"type": "nonsense"}'},
        "/schemas/ids/5": {"schema": "x", "schemaType": "THRIFT"},
    }


def _document(row: Row) -> dict[str, Any]:
    at = event_time_ms(row.time, 0)
    return {"ref": row.id, "at": at, "seen": dict(row.features), "said": row.outputs}


def _framed(number: int, data: bytes) -> bytes:
    return b"\x00" + number.to_bytes(4, "big") + data


def _avro() -> Callable[[Row], bytes]:
    parsed = fastavro.parse_schema([SEEN, SCORED])

    def encode(row: Row) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, ("Scored", _document(row)))
        # A union's writer puts the branch first; the registry's schema is that branch alone.
        return _framed(1, stream.getvalue()[1:])

    return encode


def _protobuf() -> Callable[[Row], bytes]:
    pool = descriptor_pool.DescriptorPool()
    for file in _proto_files():
        pool.AddSerializedFile(file.SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Scored"))

    def encode(row: Row) -> bytes:
        return _framed(2, b"\x02\x02" + kind(**_document(row)).SerializeToString())

    return encode


def _json(row: Row) -> bytes:
    return _framed(3, json.dumps(_document(row)).encode())


def _record(offset: int, value: bytes) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, 1000, 0, None, value, None, -1, len(value), ())


async def _converted(values: list[bytes], registry: Registry) -> Work:
    schemas = SchemaRegistry(registry.url)
    await schemas.fetch({n for value in values if (n := schema_id(value)) is not None})
    adapter = Adapter("mapping", Naming("churn", (), OUTPUTS), read_mapping(MAPPING))
    core = AdaptCore(Converter(adapter), Topics(), batch_rows=100, schemas=schemas.decoders)
    core.begin(("t", 0), 0)
    work = Work()
    core.add(("t", 0), [_record(i, value) for i, value in enumerate(values)], 0.0, work)
    return work


@pytest.mark.parametrize("kind", ["avro", "protobuf", "json"])
async def test_values_by_a_registry_are_the_native_rows(kind: str) -> None:
    encode = {"avro": _avro, "protobuf": _protobuf, "json": lambda: _json}[kind]()
    with Registry(_answers()) as registry:
        work = await _converted([encode(row) for row in native()], registry)
    (message,) = work.messages
    rows = [row for _, _, row in decode_json_rows(message.value or b"").rows]
    assert work.letters == []
    assert [(r.id, r.features, r.outputs) for r in rows] == [
        (r.id, r.features, r.outputs) for r in native()
    ]
    times = [event_time_ms(row.time, 0) for row in rows]
    assert times == [event_time_ms(row.time, 0) for row in native()]


async def test_a_schema_is_asked_for_once_and_a_missing_one_not_again_at_once() -> None:
    with Registry(_answers()) as registry:
        schemas = SchemaRegistry(registry.url)
        await schemas.fetch([3, 3, 9])
        await schemas.fetch([3, 9])
        assert registry.asked == ["/schemas/ids/3", "/schemas/ids/9"]
        assert schemas.decoders[9] is None


async def test_a_value_that_cannot_be_read_is_a_letter_and_the_others_count() -> None:
    good = _json(native()[0])
    bad = [b"", b"{}", b"\x00\x00", *(_framed(n, b"\x01") for n in (1, 2, 3, 4, 5, 9))]
    with Registry(_answers()) as registry:
        work = await _converted([*bad, good], registry)
    assert len(work.messages) == 1
    assert [DeadLetter.from_headers(letter.headers).offset for letter in work.letters] == list(
        range(len(bad))
    )


async def test_mutated_values_are_rows_or_refusals() -> None:
    rng = random.Random(3)
    with Registry(_answers()) as registry:
        schemas = SchemaRegistry(registry.url)
        await schemas.fetch([1, 2])
    values = [encode(row) for encode in (_avro(), _protobuf()) for row in native()[:4]]
    for _ in range(1500):
        value = bytearray(rng.choice(values))
        for _ in range(rng.randrange(1, 4)):
            value[rng.randrange(5, len(value))] = rng.randrange(256)
        try:
            to_json(bytes(value[: rng.randrange(5, len(value) + 1)]), schemas.decoders)
        except RejectedError:
            continue


async def test_a_registry_that_comes_back_is_asked_again_and_one_that_is_away_ends_it() -> None:
    with Registry(_answers(), failures=2) as registry:
        schemas = SchemaRegistry(registry.url)
        await schemas.fetch([3])
        assert schemas.decoders[3] is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("attributary.workers.adapt.registry._TRIES", 2)
        with pytest.raises(BrokerError, match="does not answer"):
            await schemas.fetch([1])


async def test_credentials_are_sent_and_their_lack_is_said() -> None:
    basic = "Basic " + base64.b64encode(b"me:secret").decode()
    with Registry(_answers(), user=basic) as registry:
        await SchemaRegistry(registry.url, "me", "secret").fetch([3])
        with pytest.raises(ConfigurationError, match="registry_user"):
            await SchemaRegistry(registry.url).fetch([3])


@pytest.mark.parametrize("url", ["", "host:8081", "file:///etc/passwd", "http://u:p@host"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="http"):
        SchemaRegistry(url)
