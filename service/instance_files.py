"""Instances in files: a JSON object or array, JSON lines, or CSV with a header."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

from attributary.schemas.card import ModelCard
from attributary.schemas.errors import ConfigurationError
from attributary.schemas.request import Instance, Value
from attributary.service.given_rows import instance_of

_MOST_BYTES = 64 * 2**20


def read_instances(path: Path, card: ModelCard | None) -> list[Instance]:
    """Return the instances of a file; ``-`` is standard input.

    ``card`` says which columns of a CSV file are numbers; without one, what looks like one is. An object
    with "features" is a row as it travels; others are features by name. ConfigurationError: what is wrong.
    """
    piped = str(path) == "-"
    source = "standard input" if piped else str(path)
    try:
        data = sys.stdin.buffer.read(_MOST_BYTES) if piped else path.read_bytes()
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{source}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{source}: expected UTF-8 text, as JSON or CSV") from None
    if not text.strip():
        raise ConfigurationError(f"{source} is empty; expected a row as JSON or CSV")
    try:
        rows = _json(source, text) if text.lstrip()[:1] in "[{" else _csv(source, text, card)
    except RecursionError:
        raise ConfigurationError(
            f"{source} is nested too deeply; expected a row as an object of numbers and texts"
        ) from None
    if not rows:
        raise ConfigurationError(f"{source} holds no row")
    return rows


def _json(source: str, text: str) -> list[Instance]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = _twice([name for name, _ in pairs])
            raise ConfigurationError(
                f"{source}: one object has {twice!r:.80} twice; keep one of them"
            )
        return found

    def parsed(part: str) -> Any:
        return json.loads(part, object_pairs_hook=once)

    try:
        found = parsed(text)
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        try:
            if len(lines) < 2:
                raise error from None
            found = [parsed(line) for line in lines]
        except ValueError:
            raise ConfigurationError(f"{source} is neither JSON nor JSON lines: {error}") from None
    rows = found if isinstance(found, list) else [found]
    return [_instance(source, number, row) for number, row in enumerate(rows)]


def _instance(source: str, number: int, row: Any) -> Instance:
    if not isinstance(row, dict):
        raise ConfigurationError(
            f"{source}, row {number}: expected an object of features, got {json.dumps(row)[:60]}"
        )
    features = row["features"] if isinstance(row.get("features"), dict) else row
    name = row.get("id") if features is not row else None
    return instance_of(features, f"{source}, row {number}", None if name is None else str(name))


def _csv(source: str, text: str, card: ModelCard | None) -> list[Instance]:
    kinds = {} if card is None else {feature.name: feature.kind for feature in card.features}
    try:
        lines = [line for line in csv.reader(io.StringIO(text), strict=True) if line]
    except csv.Error as error:
        raise ConfigurationError(f"{source} is neither JSON nor CSV: {error}") from None
    if not lines:
        return []
    header, *lines = lines
    # A name may have spaces of its own; others are for the eye.
    names = [name if name in kinds else name.strip() for name in header]
    # A table has more columns than the model has features: its outputs, an id.
    kept = {place: name for place, name in enumerate(names) if name in kinds or not kinds}
    if not kept:
        hint = ": separate them by commas" if set(names[0]) & set(";\t|") else ""
        raise ConfigurationError(
            f"{source}: none of its columns is a feature of the model; it has {names[:5]}{hint}"
        )
    if (twice := _twice(list(kept.values()))) is not None:
        raise ConfigurationError(f"{source} names the column {twice!r:.80} twice; keep one of them")
    rows = []
    for number, line in enumerate(lines):
        place = f"{source}, row {number}"
        if len(line) != len(names):
            raise ConfigurationError(
                f"{place}: expected {len(names)} fields, as the header has, got {len(line)}"
            )
        features = {
            name: _value(place, name, line[column], kinds.get(name))
            for column, name in kept.items()
        }
        rows.append(instance_of(features, place))
    return rows


def _twice(names: list[str]) -> str | None:
    """Return the first name that comes again."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _value(place: str, name: str, text: str, kind: str | None) -> Value:
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
                f"{place}: feature {name!r:.80} is numeric, got {text[:60]!r}"
            ) from None
        return text
