"""A schema registry over HTTP, with Confluent's interface: schemas by their ids, each asked for once."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from typing import Any

from attributary.schemas.adapters.framed import Decode, avro_decoder, protobuf_decoder
from attributary.schemas.adapters.message import parse_json
from attributary.schemas.errors import BrokerError, ConfigurationError

_log = logging.getLogger(__name__)

_SECONDS = 10.0
_TRIES = 5
_LARGEST = 4 * 2**20
_MOST_REFERENCES = 100
_MOST_SCHEMAS = 10_000
_ASK_AGAIN_SECONDS = 30.0


class SchemaRegistry:
    """``decoders``: what is known by id; None: the registry has no such schema, or one that cannot be read.

    ConfigurationError: the address is none.
    """

    def __init__(self, url: str, user: str | None = None, password: str | None = None) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username:
            raise ConfigurationError(
                f"adapt.registry: expected http(s)://host:port, and no user in it, got {url!r:.80}"
            )
        self.decoders: dict[int, Decode | None] = {}
        self._url = url.rstrip("/")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if user is not None:
            credentials = f"{user}:{password or ''}".encode()
            self._headers["Authorization"] = f"Basic {base64.b64encode(credentials).decode()}"
        self._missing_since: dict[int, float] = {}

    async def fetch(self, ids: Iterable[int]) -> None:
        """Learn schemas that are not known yet; BrokerError: the registry does not answer."""
        now = time.monotonic()
        for number in ids:
            if self.decoders.get(number) is not None:
                continue
            if now - self._missing_since.get(number, -1e9) < _ASK_AGAIN_SECONDS:
                continue
            if len(self.decoders) >= _MOST_SCHEMAS:
                self.decoders.clear()
                self._missing_since.clear()
            found = await self._until_answered(number)
            self.decoders[number] = found
            if found is None:
                self._missing_since[number] = now

    async def _until_answered(self, number: int) -> Decode | None:
        for tried in range(_TRIES):
            try:
                return await asyncio.to_thread(self._decoder, number)
            except OSError as error:
                _log.warning("the schema registry does not answer, asked again: %s", error)
                failure = error
            await asyncio.sleep(min(2.0, 0.1 * 4**tried))
        raise BrokerError(f"the schema registry at {self._url} does not answer: {failure}")

    def _decoder(self, number: int) -> Decode | None:
        """Return the reader of a schema; OSError: no answer."""
        answer = self._get(f"/schemas/ids/{number}")
        if answer is None:
            return None
        kind = answer.get("schemaType", "AVRO")
        try:
            if kind == "JSON":
                return lambda data: parse_json(data, "the value")
            if kind == "AVRO":
                return avro_decoder(str(answer["schema"]), self._references(answer, ""))
            if kind == "PROTOBUF":
                answer = self._get(f"/schemas/ids/{number}?format=serialized") or {}
                file = base64.b64decode(answer["schema"])
                return protobuf_decoder(file, self._references(answer, "?format=serialized"))
        except (OSError, ConfigurationError):
            raise
        except Exception as error:  # a schema that the libraries do not take
            _log.error("schema %d cannot be read: %r", number, error)
            return None
        _log.error("schema %d is of the type %s: AVRO, PROTOBUF and JSON are read", number, kind)
        return None

    def _references(self, answer: dict[str, Any], query: str) -> list[tuple[str, bytes]]:
        """Return what a schema names, those first that others need."""
        found: dict[str, bytes] = {}

        def visit(schema: dict[str, Any], above: tuple[str, ...]) -> None:
            for reference in schema.get("references") or ():
                name = str(reference["name"])
                if name in found:
                    continue
                if name in above or len(found) + len(above) >= _MOST_REFERENCES:
                    raise ValueError(f"references go round, or there are too many: {name}")
                subject = urllib.parse.quote(str(reference["subject"]), safe="")
                path = f"/subjects/{subject}/versions/{int(reference['version'])}{query}"
                inner = self._get(path)
                if inner is None:
                    raise ValueError(f"the registry has no {path}")
                visit(inner, (*above, name))
                text = str(inner["schema"])
                found[name] = base64.b64decode(text) if query else text.encode()

        visit(answer, ())
        return list(found.items())

    def _get(self, path: str) -> dict[str, Any] | None:
        """Return the answer; None: there is no such thing. OSError: no answer."""
        request = urllib.request.Request(self._url + path, headers=self._headers)  # noqa: S310 - checked
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as response:  # noqa: S310
                data = response.read(_LARGEST + 1)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            if error.code in (401, 403):
                raise ConfigurationError(
                    f"the schema registry at {self._url} refuses ({error.code}): set "
                    "adapt.registry_user and adapt.registry_password"
                ) from None
            raise OSError(f"HTTP {error.code}") from None
        if len(data) > _LARGEST:
            raise OSError(f"an answer of more than {_LARGEST} bytes")
        try:
            found = json.loads(data)
        except ValueError as error:
            raise OSError(f"the answer is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise OSError("the answer is no JSON object")
        return found
