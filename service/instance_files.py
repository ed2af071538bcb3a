"""Instances in files: a JSON object or array, JSON lines, or CSV with a header."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from attributary.schemas.card import ModelCard
from attributary.schemas.errors import ConfigurationError
from attributary.schemas.request import Instance, Value

_MOST_BYTES = 64 * 2**20


def read_instances(path: Path, card: ModelCard | None) -> list[Instance]:
    """Return the instances of a file; ``-`` is standard input.

    ``card`` says which columns of a CSV file are numbers; without one, what looks like one is. An object
    with "features" is a row as it travels; others are features by name. ConfigurationError: what is wrong.
    """
    try:
        data = sys.stdin.buffer.read(_MOST_BYTES) if str(path) == "-" else path.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: expected UTF-8 text, as JSON or CSV") from None
    if not text.strip():
        raise ConfigurationError(f"{path} is empty; expected a row as JSON or CSV")
    rows = _json(path, text) if text.lstrip()[:1] in "[{" else _csv(path, text, card)
    if not rows:
        raise ConfigurationError(f"{path} holds no row")
    return rows


def _json(path: Path, text: str) -> list[Instance]:
    try:
        found = json.loads(text)
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            if len(lines) < 2:
                raise error from None
            found = [json.loads(line) for line in lines]
        except ValueError:
            raise ConfigurationError(f"{path} is neither JSON nor JSON lines: {error}") from None
    rows = found if isinstance(found, list) else [found]
    return [_instance(path, number, row) for number, row in enumerate(rows)]


def _instance(path: Path, number: int, row: Any) -> Instance:
    if not isinstance(row, dict):
        raise ConfigurationError(
            f"{path}, row {number}: expected an object of features, got {json.dumps(row)[:60]}"
        )
    features = row["features"] if isinstance(row.get("features"), dict) else row
    name = row.get("id") if features is not row else None
    try:
        return Instance(features=features, id=None if name is None else str(name))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"][:2]))
        raise ConfigurationError(f"{path}, row {number}: {place}: {first['msg']}") from None


def _csv(path: Path, text: str, card: ModelCard | None) -> list[Instance]:
    kinds = {} if card is None else {feature.name: feature.kind for feature in card.features}
    reader = csv.DictReader(io.StringIO(text), strict=True)
    names = reader.fieldnames or []
    # A table has more columns than the model has features: its outputs, an id.
    kept = [name for name in names if name in kinds] if kinds else names
    if not kept:
        raise ConfigurationError(
            f"{path}: none of its columns is a feature of the model; it has {list(names)[:5]}"
        )
    rows = []
    try:
        for number, line in enumerate(reader):
            if None in line or None in line.values():
                raise ConfigurationError(
                    f"{path}, row {number}: expected {len(names)} fields, as the header has"
                )
            features = {
                name: _value(path, number, name, line[name], kinds.get(name)) for name in kept
            }
            rows.append(Instance(features=features))
    except csv.Error as error:
        raise ConfigurationError(f"{path} is neither JSON nor CSV: {error}") from None
    return rows


def _value(path: Path, number: int, name: str, text: str, kind: str | None) -> Value:
    text = text.strip()
    if not text:
        return None
    if kind not in (None, "numeric"):
        return text
    try:
        return float(text)
    except ValueError:
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        if kind == "numeric":
            raise ConfigurationError(
                f"{path}, row {number}: feature {name!r} is numeric, got {text[:60]!r}"
            ) from None
        return text
