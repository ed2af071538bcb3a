"""A mapping file: where in anybody's JSON the features, the outputs and the rest of a row lie.

TOML, with paths (see ``path``), constants and time formats; nothing in it is run.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping as MappingType
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from attributary.schemas.adapters.bodies import text_of
from attributary.schemas.adapters.inference import Facts, Half, Inference, Part, Skipped, Time
from attributary.schemas.adapters.message import ForeignMessage, parse_json
from attributary.schemas.adapters.path import MISSING, Path
from attributary.schemas.adapters.side import Side, check_count, flatten, from_rows
from attributary.schemas.errors import ConfigurationError, Reason, RejectedError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_TIME_UNITS = {
    "seconds": 1.0,
    "milliseconds": 1e3,
    "microseconds": 1e6,
    "nanoseconds": 1e9,
}
_TABLES = {"row", "features", "outputs", "pair"}
_ROW = {"each", "model", "id", "time", "weight", "skip_unless"}
_PAIR = {"id", "side", "request", "response"}


@dataclass(frozen=True)
class Source:
    """Where one value comes from: a path, with a stand-in where nothing lies there, or a constant."""

    name: str
    path: Path | None = None
    missing: Any = MISSING
    constant: Any = None
    format: str | None = None
    equals: Any = None

    def take(self, message: ForeignMessage, document: Any, row: Any) -> Any:
        """Return the value; MISSING: nothing lies there, and nothing stands in."""
        if self.path is None:
            return self.constant
        found = self.path.find(message, document, row)
        return self.missing if found is MISSING else found

    def holds(self, message: ForeignMessage, document: Any, row: Any) -> bool:
        """Return whether the value is the one that it should equal."""
        return bool(self.take(message, document, row) == self.equals)


@dataclass(frozen=True)
class Pair:
    """How halves are told apart, where request and response are messages of their own."""

    id: Source
    side: Source
    request: Any
    response: Any


@dataclass(frozen=True)
class Mapping:
    """A mapping file, read. ``features`` and ``outputs``: named sources, or one path to an object of them."""

    features: dict[str, Source] | Source
    outputs: dict[str, Source] | Source
    each: Path | None = None
    row: dict[str, Source] = field(default_factory=dict)
    pair: Pair | None = None

    def read(self, message: ForeignMessage) -> list[Part]:
        """Return what a message holds; RejectedError names the path where nothing lies."""
        document = parse_json(message.value)
        wanted = self.row.get("skip_unless")
        of_rows = wanted is not None and wanted.path is not None and wanted.path.root == "@"
        if wanted is not None and not of_rows and not wanted.holds(message, document, document):
            return [Skipped("not_wanted")]
        if self.pair is not None:
            return [self._half(message, document, self.pair)]
        rows = [document]
        if self.each is not None:
            rows = self.each.find(message, document, document)
            if not isinstance(rows, list):
                raise _nothing("row.each", self.each, "a list")
            check_count(len(rows), self.each.text)
        found: list[Part] = []
        for number, row in enumerate(rows):
            if of_rows and wanted is not None and not wanted.holds(message, document, row):
                found.append(Skipped("not_wanted"))
                continue
            seen = self._side(self.features, message, document, row, "features")
            said = self._side(self.outputs, message, document, row, "outputs")
            facts = self._facts(message, document, row)
            if len(rows) > 1 and facts.id is not None and not self._own_ids():
                facts = replace(facts, id=f"{facts.id}/{number}")
            found.append(Inference(seen, said, facts))
        return found

    def _own_ids(self) -> bool:
        """Whether every row of a message has an id of its own."""
        source = self.row.get("id")
        return source is not None and source.path is not None and source.path.root == "@"

    def _half(self, message: ForeignMessage, document: Any, pair: Pair) -> Part:
        kind = pair.side.take(message, document, document)
        if kind not in (pair.request, pair.response):
            return Skipped("other_event")
        name = text_of(pair.id.take(message, document, document))
        if name is None:
            raise _nothing("pair.id", pair.id.path, "an id")
        response = kind == pair.response
        side = self._side(
            self.outputs if response else self.features,
            message,
            document,
            document,
            "outputs" if response else "features",
        )
        facts = self._facts(message, document, document)
        return Half((name,), response, side, facts if facts.id else replace(facts, id=name))

    def _side(
        self,
        sources: dict[str, Source] | Source,
        message: ForeignMessage,
        document: Any,
        row: Any,
        what: str,
    ) -> Side:
        if isinstance(sources, Source):
            found = sources.take(message, document, row)
            if isinstance(found, (dict, list)) and found:
                return from_rows([found], f"{what}: {sources.name}")
            if what == "outputs" and isinstance(found, (int, float)):
                return from_rows([found], what)
            raise _nothing(what, sources.path, "an object or a list")
        values: dict[str, Any] = {}
        for name, source in sources.items():
            found = source.take(message, document, row)
            if found is MISSING:
                raise _nothing(f"{what}.{name}", source.path, "a value")
            values.update(flatten(name, found, what))
        return Side([values])

    def _facts(self, message: ForeignMessage, document: Any, row: Any) -> Facts:
        taken = {
            name: source.take(message, document, row)
            for name, source in self.row.items()
            if name != "skip_unless"
        }
        for name, value in taken.items():
            if value is MISSING:
                raise _nothing(f"row.{name}", self.row[name].path, "a value")
        identity = taken.get("id")
        weight = taken.get("weight", 1.0)
        if isinstance(weight, bool) or not isinstance(weight, (int, float)):
            raise RejectedError(
                Reason.BAD_WEIGHT, f"row.weight: expected a number, got {weight!r:.40}"
            )
        if identity is not None and text_of(identity) is None:
            raise RejectedError(Reason.WRONG_TYPE, f"row.id: expected text, got {identity!r:.40}")
        time = None
        if "time" in taken:
            time = moment(taken["time"], self.row["time"].format)
        return Facts(text_of(identity), text_of(taken.get("model")), time, float(weight))


def moment(value: Any, form: str | None) -> Time:
    """Return a time in a format as seconds since 1970, or as it is where none is named."""
    if value is None or isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise RejectedError(Reason.BAD_TIME, f"row.time: expected a time, got {value!r:.40}")
    if form in _TIME_UNITS:
        try:
            seconds = float(value) / _TIME_UNITS[form]
        except (ValueError, OverflowError):
            seconds = math.nan
        if not math.isfinite(seconds):
            raise RejectedError(Reason.BAD_TIME, f"row.time: expected {form}, got {value!r:.40}")
        return seconds
    if form is None or form == "rfc3339":
        return value
    try:
        found = datetime.strptime(str(value), form)
    except ValueError as error:
        raise RejectedError(Reason.BAD_TIME, f"row.time: {error!s:.120}") from None
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def read_mapping(text: str) -> Mapping:
    """Return the mapping that a TOML document describes; ConfigurationError says what is wrong in it."""
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"the mapping is not TOML: {error}") from None
    _known(tables, _TABLES, "the mapping")
    for name in ("features", "outputs"):
        if not tables.get(name):
            raise ConfigurationError(
                f"the mapping has no [{name}]: a table of names and paths, or {name} = '$.path'"
            )
    row = _table(tables, "row")
    _known(row, _ROW, "[row]")
    each = row.pop("each", None)
    sources = {name: _source(f"row.{name}", value) for name, value in row.items()}
    if (wanted := sources.get("skip_unless")) is not None and wanted.equals is None:
        raise ConfigurationError("row.skip_unless: give { path = …, equals = … }")
    path = None
    if each is not None:
        path = Path.parse(str(each))
        if not path.many:
            raise ConfigurationError(f"row.each: {each!r:.60} names one value; end it with [*]")
    pair = _pair(_table(tables, "pair"))
    if pair is not None and path is not None:
        raise ConfigurationError("[pair] and row.each do not go together: one row a message")
    return Mapping(
        _sources("features", tables["features"]),
        _sources("outputs", tables["outputs"]),
        path,
        sources,
        pair,
    )


def _sources(name: str, given: Any) -> dict[str, Source] | Source:
    if isinstance(given, str):
        return _source(name, given)
    if not isinstance(given, dict):
        raise ConfigurationError(f"[{name}]: expected names and paths, or one path")
    return {key: _source(f"{name}.{key}", value) for key, value in given.items()}


def _pair(given: MappingType[str, Any]) -> Pair | None:
    if not given:
        return None
    _known(given, _PAIR, "[pair]")
    if missing := _PAIR - given.keys():
        raise ConfigurationError(f"[pair] lacks {', '.join(sorted(missing))}")
    return Pair(
        _source("pair.id", given["id"]),
        _source("pair.side", given["side"]),
        given["request"],
        given["response"],
    )


def _source(name: str, given: Any) -> Source:
    if isinstance(given, str):
        given = {"path": given}
    if not isinstance(given, dict):
        raise ConfigurationError(
            f"{name}: expected a path or a table, got {given!r:.40}; a constant is {{ constant = … }}"
        )
    if "constant" in given:
        _known(given, {"constant"}, name)
        return Source(name, constant=given["constant"])
    _known(given, {"path", "missing", "format", "equals"}, name)
    if "path" not in given:
        raise ConfigurationError(f"{name}: neither a path nor a constant")
    form = given.get("format")
    if form is not None and (name != "row.time" or not isinstance(form, str)):
        raise ConfigurationError(f"{name}: 'format' is of row.time alone, and text")
    if form is not None and form != "rfc3339" and form not in _TIME_UNITS and "%" not in form:
        raise ConfigurationError(
            f"row.time: format {form!r:.40}: expected rfc3339, {', '.join(_TIME_UNITS)}, or a pattern "
            "such as %Y-%m-%d %H:%M:%S"
        )
    path = Path.parse(str(given["path"]))
    if path.many and name not in ("features", "outputs"):
        raise ConfigurationError(f"{name}: [*] stands for many values; it belongs in row.each")
    return Source(name, path, given.get("missing", MISSING), None, form, given.get("equals"))


def _table(tables: MappingType[str, Any], name: str) -> dict[str, Any]:
    found = tables.get(name, {})
    if not isinstance(found, dict):
        raise ConfigurationError(f"{name} must be a table: [{name}]")
    return dict(found)


def _known(given: MappingType[str, Any], names: set[str], where: str) -> None:
    for name in given:
        if name not in names:
            raise ConfigurationError(
                f"{where}: unknown {name!r:.40}; there are {', '.join(sorted(names))}"
            )


def _nothing(name: str, path: Path | None, expected: str) -> RejectedError:
    where = "" if path is None else f" at {path.text}"
    reason = Reason.OUTPUTS_MISSING if name.startswith("outputs") else Reason.WRONG_TYPE
    if name.startswith("features"):
        reason = Reason.FEATURES_MISSING
    return RejectedError(reason, f"{name}: expected {expected}{where}, found none")
