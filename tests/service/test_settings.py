"""Settings: where values come from, and what is said of those that cannot work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from attributary.schemas.errors import ConfigurationError
from attributary.service.settings import Settings, environment_variables, load_settings


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("ATTRIBUTARY_"):
            monkeypatch.delenv(name)


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "attributary.toml"
        path.write_text(text)
        return path

    return write


def _error(path: Path | None = None, overrides: dict | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_without_anything_the_defaults_hold():
    assert load_settings() == Settings()


def test_arguments_win_over_environment_over_file_over_defaults(write, monkeypatch):
    path = write("""
        metrics_port = 1
        [ingest]
        flush_seconds = 3
        grid_rows = 30
        block_offsets = 300
    """)
    monkeypatch.setenv("ATTRIBUTARY_INGEST__GRID_ROWS", "40")
    monkeypatch.setenv("ATTRIBUTARY_INGEST__BLOCK_OFFSETS", "400")
    settings = load_settings(path, {"ingest": {"block_offsets": 500}})
    assert settings.metrics_port == 1
    assert settings.ingest.flush_seconds == 3
    assert settings.ingest.grid_rows == 40
    assert settings.ingest.block_offsets == 500
    assert settings.ingest.max_models == Settings().ingest.max_models


def test_the_environment_names_the_file(write, monkeypatch):
    monkeypatch.setenv("ATTRIBUTARY_CONFIG", str(write("log_level = 'debug'")))
    assert load_settings().log_level == "debug"


def test_a_group_can_be_given_as_json(monkeypatch):
    monkeypatch.setenv("ATTRIBUTARY_MERGE", '{"publish_seconds": 2.5}')
    assert load_settings().merge.publish_seconds == 2.5


def test_a_prefix_names_all_topics_and_single_names_win(monkeypatch):
    monkeypatch.setenv("ATTRIBUTARY_TOPIC_PREFIX", "team-a.")
    monkeypatch.setenv("ATTRIBUTARY_TOPICS__ROWS", "predictions")
    topics = load_settings().topics
    assert topics.rows == "predictions"
    assert topics.dead_letters == "team-a.dead-letters"
    assert topics.sketches == "team-a.sketches"


def test_an_empty_variable_is_as_good_as_none(monkeypatch):
    monkeypatch.setenv("ATTRIBUTARY_METRICS_PORT", "")
    assert load_settings() == Settings()


def test_variables_that_kubernetes_adds_for_services_are_no_settings(monkeypatch):
    monkeypatch.setenv("ATTRIBUTARY_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("ATTRIBUTARY_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("ATTRIBUTARY_STREAM_SERVICE_PORT_HTTP", "80")
    monkeypatch.setenv("ATTRIBUTARY_STREAM_PORT_80_TCP_ADDR", "10.0.0.1")
    assert load_settings() == Settings()


@pytest.mark.parametrize(
    ("variable", "closest"),
    [
        ("ATTRIBUTARY_INGEST__FLUSH_SECOND", "ATTRIBUTARY_INGEST__FLUSH_SECONDS"),
        ("ATTRIBUTARY_METRIC_PORT", "ATTRIBUTARY_METRICS_PORT"),
        ("ATTRIBUTARY_CONNECTION__BOOTSTRP", "ATTRIBUTARY_CONNECTION__BOOTSTRAP"),
        ("ATTRIBUTARY_INGEST_FLUSH_SECONDS", "ATTRIBUTARY_INGEST__FLUSH_SECONDS"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_closest_one(monkeypatch, variable, closest):
    monkeypatch.setenv(variable, "1")
    assert _error() == f"unknown environment variable {variable}: did you mean {closest}?"


def test_an_unknown_variable_like_no_other_is_refused_with_what_there_is(monkeypatch):
    monkeypatch.setenv("ATTRIBUTARY_ZZZZ", "1")
    assert "known are ATTRIBUTARY_ADAPT, ATTRIBUTARY_CONFIG, ATTRIBUTARY_CONNECTION," in _error()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[ingest]\nflush_secs = 1", "ingest.flush_secs: did you mean ingest.flush_seconds?"),
        ("[injest]\nflush_seconds = 1", "injest.flush_seconds: did you mean ingest.flush_seconds?"),
        ("[zzz]", "unknown setting zzz: known are adapt, connection, "),
        ("[ingest", "is not TOML"),
        ("ingest = 3", "ingest: input should be a valid dictionary"),
        ("[ingest]\nflush_seconds = -1", "ingest.flush_seconds: input should be greater than 0, got -1"),
        ("[topics]\nrows = 'a b'", "topic name 'a b' of rows"),
        ("[topics]\nrows = 'x'\ndrift = 'x'", "drift and rows are both named 'x'"),
        ("[connection]\nbootstrap = 'kafka'", "'kafka': expected host:port"),
        ("[connection]\nbootstrap = 'kafka:99999'", "'kafka:99999': expected host:port"),
    ],
)  # fmt: skip
def test_what_cannot_work_in_a_file_is_said_in_one_line(write, text, said):
    assert said in _error(write(text))


def test_a_file_that_is_not_there_is_named(tmp_path):
    path = tmp_path / "none.toml"
    assert _error(path) == f"settings file {path}: No such file or directory"


def test_all_bad_values_are_told_with_the_variable_that_gave_them(monkeypatch):
    monkeypatch.setenv("ATTRIBUTARY_INGEST__FLUSH_SECONDS", "often")
    monkeypatch.setenv("ATTRIBUTARY_METRICS_PORT", "70000")
    message = _error()
    assert "ATTRIBUTARY_INGEST__FLUSH_SECONDS: input should be a valid number" in message
    assert "got 'often'" in message
    assert "ATTRIBUTARY_METRICS_PORT: input should be less than or equal to 65535" in message


def test_broken_json_names_its_variable(monkeypatch):
    monkeypatch.setenv("ATTRIBUTARY_INGEST", '{"flush_seconds":')
    assert 'field "ingest"' in _error()


def test_a_list_in_the_environment_is_json_and_another_text_says_so(monkeypatch):
    monkeypatch.setenv("ATTRIBUTARY_MODELS__ROOTS", '["/srv/models", "/mnt"]')
    monkeypatch.setenv("ATTRIBUTARY_MODELS__SERVER_HOSTS", "")
    assert load_settings().models.roots == (Path("/srv/models"), Path("/mnt"))
    monkeypatch.setenv("ATTRIBUTARY_MODELS__ROOTS", "/srv/models")
    assert _error().startswith("environment: ATTRIBUTARY_MODELS__ROOTS: expected a JSON list")
    assert ("ATTRIBUTARY_MODELS__ROOTS", "[]") in {row[:2] for row in environment_variables()}


def test_every_listed_variable_is_one_that_is_read(monkeypatch):
    for name, default, _ in environment_variables():
        if default:
            monkeypatch.setenv(name, default)
    assert load_settings() == Settings()
    assert len(environment_variables()) > 30
