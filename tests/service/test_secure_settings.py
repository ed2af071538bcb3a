"""TLS and SASL from environment and file: one line for every mistake, and never the secret in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command import error_line, run

from attributary.schemas.errors import ConfigurationError
from attributary.service.settings import environment_variables, load_settings

SECRET = "hunter2-never-shown"
SASL = "ATTRIBUTARY_CONNECTION__SASL__"
TLS = "ATTRIBUTARY_CONNECTION__TLS__"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("ATTRIBUTARY_"):
            monkeypatch.delenv(name)


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch):
    def given(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return given


def _error(path: Path | None = None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(path)
    message = str(caught.value)
    assert "\n" not in message
    assert SECRET not in message
    return message


@pytest.mark.parametrize("password", [SECRET, "12345", "true", '{"a": 1}', " spaced = ", "ü€"])
def test_a_password_from_the_environment_is_taken_as_it_is(given, password: str) -> None:
    given(
        **{
            f"{SASL}MECHANISM": "scram-sha-512",
            f"{SASL}USERNAME": "alice",
            f"{SASL}PASSWORD": password,
            f"{TLS}ENABLED": "true",
        }
    )
    connection = load_settings().connection
    assert connection.security_protocol == "SASL_SSL"
    assert connection.client_arguments()["sasl_plain_password"] == password


def test_a_file_of_settings_may_name_the_file_of_the_secret(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(SECRET + "\n")
    path = tmp_path / "settings.toml"
    path.write_text(f"""
        [connection]
        bootstrap = "kafka:9093"
        [connection.tls]
        enabled = true
        [connection.sasl]
        mechanism = "PLAIN"
        username = "alice"
        password_file = "{tmp_path}/password"
    """)
    arguments = load_settings(path).connection.client_arguments()
    assert arguments["sasl_plain_password"] == SECRET
    assert SECRET not in repr(load_settings(path))


def test_a_group_may_be_given_as_json(given) -> None:
    given(
        ATTRIBUTARY_CONNECTION__TLS='{"enabled": true}',
        ATTRIBUTARY_CONNECTION__SASL=f'{{"mechanism":"PLAIN","username":"a","password":"{SECRET}"}}',
    )
    assert load_settings().connection.security_protocol == "SASL_SSL"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"PASSWORD": SECRET}, "connection.sasl.password is given without connection.sasl.mechanism"),
        ({"MECHANISM": "GSSAPI"}, f"{SASL}MECHANISM: GSSAPI (Kerberos) is not supported"),
        (
            {"MECHANISM": "PLAIN", "USERNAME": "a", "PASSWORD": SECRET},
            "SASL PLAIN without TLS would send the password in the clear",
        ),
        (
            {"MECHANISM": "PLAIN", "USERNAME": "a", "PASSWORD": SECRET, "PASSWORD_FILE": "/x"},
            "either connection.sasl.password_file or connection.sasl.password, not both",
        ),
        (
            {"MECHANISM": "PLAIN", "USERNAME": "a", "PASSWORD_FILE": "/no/such", "ALLOW_PLAINTEXT": "1"},
            "connection.sasl.password_file /no/such: No such file or directory",
        ),
        ({"PASWORD": SECRET}, f"{SASL}PASWORD: did you mean {SASL}PASSWORD?"),
        ({"TOKEN_URL": f"https://u:{SECRET}@x/"}, f"{SASL}TOKEN_URL: no user or password"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_said_in_one_line(given, variables: dict[str, str], said: str) -> None:
    given(**{SASL + name: value for name, value in variables.items()})
    assert said in _error()


@pytest.mark.parametrize(
    "value",
    [
        f'{{"mechanism": "PLAIN", "username": "a", "password": {SECRET}}}',
        f'"{SECRET}"',
        f'["{SECRET}"]',
        f'{{"mechanism": "PLAIN", "username": "a", "password": ["{SECRET}"]}}',
        f'{{"mechanism": "PLAIN", "username": "a", "passwd": "{SECRET}"}}',
    ],
)
def test_a_broken_group_is_not_repeated(given, value: str) -> None:
    given(ATTRIBUTARY_CONNECTION__SASL=value)
    _error()


def test_a_password_of_another_type_in_a_file_is_not_repeated(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text('connection.sasl = {mechanism = "PLAIN", username = "a", password = 31337}')
    message = _error(path)
    assert f"{path}: connection.sasl.password: input should be a valid string" in message
    assert "31337" not in message


def test_help_lists_the_settings_and_not_what_they_are(given) -> None:
    names = {name for name, _, _ in environment_variables()}
    assert {f"{SASL}PASSWORD_FILE", f"{SASL}TOKEN_URL", f"{TLS}CA_FILE"} <= names
    listed = run(
        "stream", "--help-settings", **{f"{SASL}MECHANISM": "PLAIN", f"{SASL}PASSWORD": SECRET}
    )
    assert listed.returncode == 0
    assert f"{SASL}PASSWORD=\n" in listed.stdout
    assert SECRET not in listed.stdout + listed.stderr


@pytest.mark.parametrize("command", ["up", "demo"])
def test_the_embedded_broker_is_not_asked_for_tls(command: str) -> None:
    line = error_line(run(command, **{f"{TLS}ENABLED": "true"}))
    assert "the embedded broker speaks neither TLS nor SASL: leave connection.tls and" in line
