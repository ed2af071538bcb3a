"""TLS and SASL settings: what goes together, what files must hold, and that secrets stay secret."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from pydantic import ValidationError

from attributary.schemas.connection import Connection
from attributary.schemas.errors import ConfigurationError
from attributary.schemas.sasl import Sasl
from attributary.schemas.tls import Tls

SECRET = "hunter2-never-shown"
PLAIN = {"mechanism": "PLAIN", "username": "alice", "password": SECRET}
TOKENS = {
    "mechanism": "OAUTHBEARER",
    "token_url": "https://login.example.com/token",
    "client_id": "me",
    "client_secret": SECRET,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    for name in ("one", "two"):
        issued = authority.issue_cert(f"{name}@example.org")
        issued.cert_chain_pems[0].write_to_path(str(folder / f"{name}.crt"))
        issued.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        issued.private_key_and_cert_chain_pem.write_to_path(str(folder / f"{name}.pem"))
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        locked = BestAvailableEncryption(SECRET.encode())
        (folder / f"{name}.locked").write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked)
        )
    (folder / "text").write_text("nothing of use\n")
    (folder / "password").write_text(f"{SECRET}\n")
    (folder / "empty").write_text("\n")
    (folder / "binary").write_bytes(b"\xff\xfe")
    (folder / "huge").write_bytes(b"x" * 100_000)
    return folder


def test_without_tls_and_sasl_a_client_gets_the_address_alone() -> None:
    assert Connection().client_arguments() == {"bootstrap_servers": "localhost:9092"}
    assert Connection().security_protocol == "PLAINTEXT"


@pytest.mark.parametrize(
    ("tls", "sasl", "protocol"),
    [
        ({"enabled": True}, {}, "SSL"),
        ({"enabled": True}, PLAIN, "SASL_SSL"),
        ({}, {**PLAIN, "allow_plaintext": True}, "SASL_PLAINTEXT"),
    ],
)
def test_clients_are_told_the_protocol(
    tls: dict[str, Any], sasl: dict[str, Any], protocol: str
) -> None:
    arguments = Connection(tls=Tls(**tls), sasl=Sasl(**sasl)).client_arguments()
    assert arguments["security_protocol"] == protocol
    assert ("ssl_context" in arguments) == bool(tls)
    if sasl:
        assert arguments["sasl_mechanism"] == "PLAIN"
        assert arguments["sasl_plain_username"] == "alice"
        assert arguments["sasl_plain_password"] == SECRET


def test_tls_verifies_chain_and_name_unless_told_otherwise(files: Path) -> None:
    strict = Tls(enabled=True).context()
    assert strict.verify_mode == ssl.CERT_REQUIRED
    assert strict.check_hostname
    assert strict.minimum_version >= ssl.TLSVersion.TLSv1_2
    lax = Tls(ca_file=files / "ca.pem", check_hostname=False).context()
    assert lax.verify_mode == ssl.CERT_REQUIRED
    assert not lax.check_hostname
    assert len(lax.get_ca_certs()) == 1, "a CA of one's own replaces the system's"


def test_a_tls_file_turns_tls_on_unless_it_is_turned_off(files: Path) -> None:
    assert Tls(ca_file=files / "ca.pem").enabled
    assert not Tls(ca_file=files / "ca.pem", enabled=False).enabled
    assert not Tls(check_hostname=False).enabled
    assert not Tls(ca_file=None).enabled


@pytest.mark.parametrize(
    "given",
    [
        {"cert_file": "one.pem"},
        {"cert_file": "one.crt", "key_file": "one.key"},
        {"cert_file": "one.crt", "key_file": "one.locked", "key_password": SECRET},
        {"cert_file": "one.crt", "key_file": "one.locked", "key_password_file": "password"},
    ],
)
def test_client_certificates_load(files: Path, given: dict[str, str]) -> None:
    Tls(**_in(files, given)).context()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ca_file": "none"}, "connection.tls.ca_file {}/none: No such file"),
        ({"ca_file": "text"}, "connection.tls.ca_file {}/text: it holds no PEM certificate"),
        ({"cert_file": "none"}, "connection.tls.cert_file {}/none: No such file"),
        ({"cert_file": "one.crt", "key_file": "none"}, "tls.key_file {}/none: No such file"),
        ({"cert_file": "text"}, "expected PEM: a certificate in {}/text"),
        ({"cert_file": "one.crt"}, "expected PEM: a certificate in {}/one.crt and a private key in"),
        ({"cert_file": "one.crt", "key_file": "two.key"}, "two.key is not the one of the certificate"),
        ({"cert_file": "one.crt", "key_file": "one.locked"}, "is encrypted: give its password in"),
        (
            {"cert_file": "one.crt", "key_file": "one.locked", "key_password": "wrong-" + SECRET},
            "one.locked cannot be read with the password that is given",
        ),
        (
            {"cert_file": "one.crt", "key_file": "one.locked", "key_password_file": "empty"},
            "connection.tls.key_password_file {}/empty is empty",
        ),
    ],
)  # fmt: skip
def test_a_tls_file_of_no_use_is_named(files: Path, given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Tls(**_in(files, given)).context()
    assert said.format(files) in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        (
            {"key_file": "k"},
            "connection.tls.key_file is of no use without connection.tls.cert_file",
        ),
        ({"key_password": SECRET}, "connection.tls.key_password is of no use without"),
        (
            {"cert_file": "c", "key_password": SECRET, "key_password_file": "p"},
            "either connection.tls.key_password_file or connection.tls.key_password, not both",
        ),
        ({"key": "k"}, "Extra inputs are not permitted"),
    ],
)
def test_tls_settings_that_do_not_go_together(tls: dict[str, str], said: str) -> None:
    assert said in _refused(tls=tls)


@pytest.mark.parametrize(
    ("sasl", "said"),
    [
        ({"mechanism": "GSSAPI"}, "GSSAPI (Kerberos) is not supported: use SCRAM-SHA-512"),
        ({"mechanism": "DIGEST-MD5"}, "'SCRAM-SHA-512' or 'OAUTHBEARER'"),
        ({"username": "a"}, "connection.sasl.username is given without connection.sasl.mechanism"),
        ({"mechanism": "PLAIN", "password": SECRET}, "PLAIN needs connection.sasl.username"),
        ({"mechanism": "PLAIN", "username": "a"}, "connection.sasl.password, which is missing"),
        ({**PLAIN, "password_file": "p"}, "connection.sasl.password, not both"),
        ({**PLAIN, "scope": "x"}, "connection.sasl.scope does not apply to PLAIN"),
        ({**TOKENS, "username": "a"}, "connection.sasl.username does not apply to OAUTHBEARER"),
        ({**TOKENS, "token_file": "t"}, "token_file and connection.sasl.token_url, not both"),
        ({"mechanism": "OAUTHBEARER"}, "needs one of connection.sasl.token_file and"),
        ({**TOKENS, "client_id": None}, "connection.sasl.token_url needs connection.sasl.client_id"),
        ({**TOKENS, "client_secret": None}, "connection.sasl.client_secret, which is missing"),
        (
            {"mechanism": "OAUTHBEARER", "token_file": "t", "scope": "x"},
            "connection.sasl.scope goes with connection.sasl.token_url",
        ),
        ({**TOKENS, "token_url": "http://login.example.com/"}, "would travel in the clear"),
        ({**TOKENS, "token_url": "http://localhost.example.com/"}, "would travel in the clear"),
        ({**TOKENS, "token_url": f"https://me:{SECRET}@x/"}, "no user or password in the address"),
        ({**TOKENS, "token_url": "login"}, "expected an address such as https://"),
        ({**PLAIN, "password": 12345}, "Input should be a valid string"),
    ],
)  # fmt: skip
def test_sasl_settings_that_do_not_go_together(sasl: dict[str, Any], said: str) -> None:
    assert said in _refused(tls={"enabled": True}, sasl=sasl)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]"])
def test_a_token_endpoint_on_loopback_needs_no_tls(host: str) -> None:
    assert Sasl(**{**TOKENS, "token_url": f"http://{host}:8080/token"}).token_url


@pytest.mark.parametrize(
    ("sasl", "risk"),
    [
        (PLAIN, "would send the password in the clear"),
        (TOKENS, "would send the token in the clear"),
        ({**PLAIN, "mechanism": "SCRAM-SHA-256"}, "guess the password"),
    ],
)
def test_sasl_without_tls_is_refused_unless_it_is_allowed(sasl: dict[str, Any], risk: str) -> None:
    said = _refused(sasl=sasl)
    assert risk in said
    assert "connection.sasl.allow_plaintext = true" in said
    assert risk in _refused(sasl=sasl, tls={"enabled": False, "ca_file": "/x"})
    Connection(sasl=Sasl(**sasl, allow_plaintext=True))


def test_a_password_comes_from_a_file_without_its_line_feed(files: Path) -> None:
    sasl = Sasl(mechanism="SCRAM-SHA-512", username="a", password_file=files / "password")
    assert sasl.client_arguments()["sasl_plain_password"] == SECRET


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none", "No such file or directory"),
        ("empty", "is empty"),
        ("binary", "expected text in UTF-8"),
        ("huge", "expected at most 65,536 bytes"),
    ],
)
def test_a_secrets_file_of_no_use_is_named(files: Path, name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        Sasl(mechanism="PLAIN", username="a", password_file=files / name).client_arguments()
    assert f"connection.sasl.password_file {files / name}" in str(caught.value)


def test_no_secret_is_ever_shown() -> None:
    connection = Connection(tls=Tls(enabled=True), sasl=Sasl(**PLAIN))
    both = Connection(
        tls=Tls(cert_file=Path("c"), key_password=SECRET),  # type: ignore[arg-type]
        sasl=Sasl(**TOKENS),
    )
    for shown in (connection, both):
        for text in (repr(shown), str(shown), shown.model_dump_json(), repr(shown.model_dump())):
            assert SECRET not in text


def test_aiokafka_may_log_everything_but_the_handshake(caplog: pytest.LogCaptureFixture) -> None:
    class SaslAuthenticateRequest:
        """Stands for aiokafka's, which shows its bytes."""

        def __str__(self) -> str:
            return SECRET

    Sasl(**PLAIN).client_arguments()
    log = logging.getLogger("aiokafka.conn")
    with caplog.at_level(logging.DEBUG, "aiokafka.conn"):
        log.debug("Request to %s:%d %d: %s", "host", 1, 2, SaslAuthenticateRequest())
        log.debug("Request to %s:%d %d: %s", "host", 1, 2, "MetadataRequest")
    assert SECRET not in caplog.text
    assert "MetadataRequest" in caplog.text


def _in(files: Path, given: dict[str, str]) -> dict[str, Any]:
    return {
        name: files / value if name.endswith("_file") else value for name, value in given.items()
    }


def _refused(**settings: Any) -> str:
    """Return what is said of settings that are refused, as a traceback would show it."""
    with pytest.raises(ValidationError) as caught:
        Connection(**settings)
    assert SECRET not in str(caught.value)
    assert SECRET not in repr(caught.value)
    return str(caught.value)
