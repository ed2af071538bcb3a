"""The one codec of the JSON messages: pydantic models that carry their schema's name and version."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from attributary.schemas.errors import Reason, RejectedError

Kind = TypeVar("Kind", bound="Message")


class Message(BaseModel):
    """A JSON message. ``schema`` is ``attributary.<name>/<version>``; unknown fields are ignored.

    Ignoring unknown fields lets an older reader follow a newer writer; a changed meaning takes a
    new version, which an older reader refuses.
    """

    model_config = ConfigDict(
        frozen=True, populate_by_name=True, serialize_by_alias=True, ser_json_inf_nan="null"
    )

    SCHEMA: ClassVar[str]

    schema_: str = Field(default="", alias="schema", description="Name and version of the schema.")

    @model_validator(mode="before")
    @classmethod
    def _known_schema(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        named = data.get("schema") or data.get("schema_") or cls.SCHEMA
        if named != cls.SCHEMA:
            raise ValueError(f"expected the schema {cls.SCHEMA!r}, got {named!r}")
        return {**data, "schema": cls.SCHEMA}

    def to_bytes(self) -> bytes:
        """Return the message as UTF-8 JSON; NaN and infinities become null."""
        return self.model_dump_json().encode()

    @classmethod
    def from_bytes(cls: type[Kind], data: bytes | None) -> Kind:
        """Return the message; RejectedError names what is wrong (the caller keeps the bytes)."""
        try:
            return cls.model_validate_json(data or b"")
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "message"
            reason = Reason.NOT_DECODABLE if first["type"] == "json_invalid" else Reason.WRONG_TYPE
            raise RejectedError(reason, f"{cls.SCHEMA}: {place}: {first['msg']}") from None
