"""The settings of every process: typed, from environment and file, built once at the entry point.

Order, the first that speaks wins: arguments of the command, environment (``ATTRIBUTARY_…``, two
underscores between levels, such as ``ATTRIBUTARY_INGEST__FLUSH_SECONDS=0.5``), the TOML file, the
defaults. A name that does not exist is refused, with the closest one that does.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from attributary.schemas.connection import Connection
from attributary.schemas.errors import ConfigurationError
from attributary.schemas.topics import DEFAULT_PREFIX, Topics
from attributary.service.address import addresses
from attributary.workers.adapt.options import AdaptOptions
from attributary.workers.ondemand.options import OnDemandOptions
from attributary.workers.ondemand.policy import LoadPolicy
from attributary.workers.stream.options import IngestOptions, MergeOptions

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENV_PREFIX = "ATTRIBUTARY_"
ENV_FILE_NAME = "ATTRIBUTARY_CONFIG"
_DELIMITER = "__"
# What Kubernetes adds to every pod for a Service whose name begins like our prefix.
_SERVICE_LINK = re.compile(
    r"ATTRIBUTARY_(\w+_)?(SERVICE_HOST=|SERVICE_PORT(_\w+)?=|PORT(_\d+_(TCP|UDP|SCTP)\w*=|=\w+://))"
)
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")

Count = Annotated[int, Field(gt=0)]
Hours = Annotated[float, Field(gt=0)]


class TopicLayout(BaseModel):
    """How the topics are created. On topics that exist already, differences are only reported."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows_partitions: Count = Field(
        default=4, description="Partitions of rows: at most so many ingest workers share the work."
    )
    sketches_partitions: Count = Field(
        default=4, description="Partitions of sketches: at most so many merge workers."
    )
    requests_partitions: Count = Field(
        default=4, description="Partitions of requests: at most so many request workers."
    )
    replication_factor: Count = Field(default=1, description="Copies of every topic.")
    rows_retention_hours: Hours = Field(
        default=24.0, description="Must exceed the longest time that the workers are down."
    )
    sketches_retention_hours: Hours = Field(
        default=168.0, description="Must exceed the longest window."
    )
    results_retention_hours: Hours = Field(
        default=168.0, description="For attributions, drift, explanations and dead letters."
    )
    requests_retention_hours: Hours = Field(
        default=24.0, description="Must exceed the longest deadline of a request."
    )


class Settings(BaseSettings):
    """Everything that can be set; ``load_settings`` builds it."""

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        env_nested_delimiter=_DELIMITER,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
    )

    connection: Connection = Connection()
    topic_prefix: str = Field(default=DEFAULT_PREFIX, description="Prefix of every topic's name.")
    topics: Topics = Topics()
    layout: TopicLayout = TopicLayout()
    ingest: IngestOptions = IngestOptions()
    merge: MergeOptions = MergeOptions()
    ondemand: OnDemandOptions = OnDemandOptions()
    adapt: AdaptOptions = AdaptOptions()
    models: LoadPolicy = LoadPolicy()
    metrics_host: str = Field(default="127.0.0.1", description="Address that serves /metrics.")
    metrics_port: Annotated[int, Field(ge=0, le=65535)] = Field(
        default=0, description="Its port; 0 takes a free one."
    )
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take what the caller passes, alone: ``load_settings`` reads environment and file."""
        return (init_settings,)

    @model_validator(mode="before")
    @classmethod
    def _name_topics(cls, data: Any) -> Any:
        """Derive the topics' names from the prefix; names that are given win."""
        named = data.get("topics", {})
        prefix = data.get("topic_prefix", DEFAULT_PREFIX)
        if isinstance(named, dict) and isinstance(prefix, str):
            return {**data, "topics": {**Topics.with_prefix(prefix).model_dump(), **named}}
        return data

    @model_validator(mode="after")
    def _usable_topics(self) -> Settings:
        roles: dict[str, str] = {}
        for role, name in self.topics.model_dump().items():
            if not _TOPIC_NAME.fullmatch(name):
                raise ValueError(
                    f"topic name {name!r} of {role}: expected 1 to 249 letters, digits, '.', '_', '-'"
                )
            if name in roles:
                raise ValueError(f"{role} and {roles[name]} are both named {name!r}")
            roles[name] = role
        return self


def load_settings(path: Path | None = None, overrides: Mapping[str, Any] | None = None) -> Settings:
    """Return the settings of this process.

    ``path``: a TOML file; None takes the one that ``ATTRIBUTARY_CONFIG`` names, if any.
    ``overrides``: nested like the settings; they win over environment and file.
    ConfigurationError: one line that says what is wrong, and where.
    """
    if path is None and (named := os.environ.get(ENV_FILE_NAME)):
        path = Path(named)
    in_file = {} if path is None else _read(path)
    in_environment = _read_environment()
    names = _names()
    for given, where in ((in_file, str(path)), (in_environment, "environment")):
        for name in _paths(given):
            _refuse_unknown(name, names, f"{where}: unknown setting")
    merged = _merge(_merge(in_file, in_environment), overrides or {})
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        raise ConfigurationError(_explain(error, in_file, in_environment, path)) from None
    addresses(settings.connection.bootstrap)
    settings.connection.client_arguments()  # a file that cannot be used is said now
    return settings


def environment_variables() -> list[tuple[str, str, str]]:
    """Return (variable, default, description) of every setting, for help texts."""
    found = []
    for name, field in _leaves(Settings):
        default = "" if name.startswith("topics.") or field.default is None else str(field.default)
        if isinstance(field.default, tuple):
            default = json.dumps(field.default)
        found.append((_variable(name), default, field.description or ""))
    return found


def _leaves(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _leaves(kind, f"{prefix}{name}.")
        else:
            yield prefix + name, field


def _names() -> set[str]:
    """Return the names of all settings, and of their groups: one may be given whole, as JSON."""
    names = {name for name, _ in _leaves(Settings)}
    for name in list(names):
        while name := name.rpartition(".")[0]:
            names.add(name)
    return names


def _paths(values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{prefix}{name}.")
        else:
            yield prefix + name


def _variable(name: str) -> str:
    return ENV_PREFIX + name.replace(".", _DELIMITER).upper()


def _merge(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(low)
    for name, value in high.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[name] = _merge(below, value)
        else:
            merged[name] = value
    return merged


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"settings file {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigurationError(f"settings file {path} is not TOML: {error}") from None


def _read_environment() -> dict[str, Any]:
    known = {_variable(name) for name in _names()} | {ENV_FILE_NAME}
    lists = {
        _variable(name) for name, field in _leaves(Settings) if isinstance(field.default, tuple)
    }
    for variable, value in sorted(os.environ.items()):
        name = variable.upper()
        if name.startswith(ENV_PREFIX) and not _SERVICE_LINK.match(f"{name}={value}"):
            _refuse_unknown(name, known, "unknown environment variable", ENV_PREFIX)
            if name in lists and value and not value.lstrip().startswith("["):
                raise ConfigurationError(
                    f'environment: {name}: expected a JSON list, such as \'["one", "two"]\''
                )
    try:
        return EnvSettingsSource(Settings)()
    except SettingsError as error:
        raise ConfigurationError(f"environment: {error}: {error.__cause__}") from None


def _refuse_unknown(name: str, known: set[str], what: str, prefix: str = "") -> None:
    if name in known:
        return
    bare = {other.removeprefix(prefix) for other in known}
    close = difflib.get_close_matches(name.removeprefix(prefix), sorted(bare), n=1, cutoff=0.6)
    top = sorted(prefix + other for other in bare if not re.search(r"\.|__", other))
    hint = f"did you mean {prefix}{close[0]}?" if close else f"known are {', '.join(top)}"
    raise ConfigurationError(f"{what} {name}: {hint}")


def _explain(
    error: ValidationError,
    in_file: Mapping[str, Any],
    in_environment: Mapping[str, Any],
    path: Path | None,
) -> str:
    """Say the problems in one line: the setting, where it came from, what it got, what it needs."""
    problems = []
    showable = {name for name, field in _leaves(Settings) if not _private(name, field)}
    for problem in error.errors(include_url=False):
        name = ".".join(str(part) for part in problem["loc"])
        message = problem["msg"].removeprefix("Value error, ")
        if not name or message.startswith(f"{name}."):
            problems.append(message)
            continue
        origin = name
        if name in set(_paths(in_environment)):
            origin = _variable(name)
        elif name in set(_paths(in_file)):
            origin = f"{path}: {name}"
        if message[1:2].islower():
            message = message[0].lower() + message[1:]
        # A group, or a setting that may hold a secret, is not repeated.
        got = f", got {problem['input']!r}" if name in showable else ""
        problems.append(f"{origin}: {message}{got}")
    return "; ".join(problems)


def _private(name: str, field: Any) -> bool:
    secret = SecretStr in (field.annotation, *get_args(field.annotation))
    return secret or name == "connection.sasl.token_url"
