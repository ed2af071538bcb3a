"""Values with the id of their schema in front (Confluent's wire format), as JSON: Avro, Protobuf, JSON.

A value is a zero byte, the schema's id in four bytes, and the data; before Protobuf's data stands which
message of the schema's file it is. The extra ``registry`` brings the readers.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from attributary.schemas.adapters.message import parse_json
from attributary.schemas.errors import ConfigurationError, Reason, RejectedError

Decode = Callable[[bytes], Any]
_HEAD = 5
_DEEPEST = 64
_encoder = msgspec.json.Encoder(decimal_format="number")


def schema_id(value: bytes) -> int | None:
    """Return the id of the schema of a value; None where it does not begin as such values do."""
    if len(value) < _HEAD or value[0] != 0:
        return None
    return int.from_bytes(value[1:_HEAD], "big")


def to_json(value: bytes, schemas: Mapping[int, Decode | None]) -> bytes:
    """Return a value as JSON by its schema; RejectedError: it has none, or is none of it."""
    number = schema_id(value)
    if number is None:
        raise RejectedError(
            Reason.NOT_DECODABLE if value else Reason.EMPTY,
            "the value has no schema id in front: a zero byte and four bytes were expected",
        )
    decode = schemas.get(number)
    if decode is None:
        raise RejectedError(Reason.NOT_DECODABLE, f"the registry has no schema {number}")
    try:
        return _encoder.encode(decode(value[_HEAD:]))
    except RejectedError:
        raise
    except Exception as error:  # whatever bytes make a foreign reader raise
        raise RejectedError(
            Reason.NOT_DECODABLE, f"not a value of the schema {number}: {error!r:.200}"
        ) from None


def avro_decoder(schema: str, references: Sequence[tuple[str, bytes]] = ()) -> Decode:
    """Return a reader of Avro's binary encoding; ``references``: schemas that this one names, those first
    that others need."""
    try:
        import fastavro
    except ImportError:
        raise _missing("fastavro") from None
    named: dict[str, Any] = {}
    for _, text in references:
        fastavro.parse_schema(parse_json(text, "a referenced schema"), named)
    parsed = fastavro.parse_schema(parse_json(schema, "the schema"), named)

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        found = fastavro.schemaless_reader(stream, parsed, None)
        if stream.read(1):
            raise ValueError("bytes follow it")
        return _plain(found, 0)

    return decode


def protobuf_decoder(file: bytes, references: Sequence[tuple[str, bytes]] = ()) -> Decode:
    """Return a reader of the messages of a file, a serialized FileDescriptorProto; ``references``: files
    that it imports, by the name under which it does, those first that others need."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError:
        raise _missing("protobuf") from None
    pool = descriptor_pool.DescriptorPool()
    for known in _well_known():
        pool.AddSerializedFile(known)
    for name, data in references:
        imported = descriptor_pb2.FileDescriptorProto.FromString(data)
        imported.name = name
        pool.AddSerializedFile(imported.SerializeToString())
    main = descriptor_pb2.FileDescriptorProto.FromString(file)
    main.name = "attributary-main.proto"
    pool.AddSerializedFile(main.SerializeToString())

    def decode(data: bytes) -> Any:
        indexes, at = _indexes(data)
        found: Any = main.message_type[indexes[0]]
        names = [main.package] if main.package else []
        names.append(found.name)
        for index in indexes[1:]:
            found = found.nested_type[index]
            names.append(found.name)
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(".".join(names)))
        return _message(kind.FromString(data[at:]), 0)

    return decode


def _missing(library: str) -> ConfigurationError:
    return ConfigurationError(f"{library} is not installed: pip install 'attributary[registry]'")


def _plain(value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        return {str(name): _plain(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, depth + 1) for inner in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _message(message: Any, depth: int) -> Any:
    """Return a message as plain values; fields that may be absent, and are, are not there."""
    from google.protobuf.json_format import MessageToDict

    name = message.DESCRIPTOR.full_name
    if name.startswith("google.protobuf."):
        if name.endswith("Value") and name not in (
            "google.protobuf.Value",
            "google.protobuf.ListValue",
        ):
            return _plain(message.value, depth)
        return MessageToDict(message)
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if not field.is_repeated:
            found[field.name] = _field(field, value, depth + 1)
        elif field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            found[field.name] = {str(k): _field(inner, value[k], depth + 1) for k in value}
        else:
            found[field.name] = [_field(field, each, depth + 1) for each in value]
    return found


def _field(field: Any, value: Any, depth: int) -> Any:
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if field.message_type is not None:
        return _message(value, depth)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    return _plain(value, depth)


def _indexes(data: bytes) -> tuple[list[int], int]:
    """Return which message it is, level by level, and where its data begin."""
    count, at = _zigzag(data, 0)
    if count == 0:
        return [0], at
    if not 0 < count <= _DEEPEST:
        raise ValueError(f"{count} message indexes")
    found = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        if index < 0:
            raise ValueError("a message index below 0")
        found.append(index)
    return found, at


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the message indexes are cut")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _well_known() -> list[bytes]:
    from google.protobuf import duration_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

    modules = (timestamp_pb2, duration_pb2, wrappers_pb2, struct_pb2)
    return [module.DESCRIPTOR.serialized_pb for module in modules]
