"""An Apache Kafka with TLS and SASL: one broker with a listener of each kind, and its certificates."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import trustme
from broker_kafka import KafkaBroker
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from attributary.service.embedded import HOST, free_port

USER, PASSWORD, KEY_PASSWORD = "alice", "s3cret-of-alice", "s3cret-of-the-key"
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES = {
    "plain": f'plain.PlainLoginModule required user_{USER}="{PASSWORD}"',
    "scram-sha-256": "scram.ScramLoginModule required",
    "scram-sha-512": "scram.ScramLoginModule required",
    "oauthbearer": 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="kafka"',
}


class SecureKafka:
    """The broker, the addresses of its listeners and the files that a client needs.

    ``sasl``: TLS and SASL. ``mutual``: TLS, and a client certificate is asked for. ``misnamed``: TLS with the
    certificate of another host. ``open``: SASL without TLS. ``plain``: neither.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="attributary-secure-"))
        listeners = {
            "SASL": ("SASL_SSL", free_port()),
            "MUTUAL": ("SSL", free_port()),
            "MISNAMED": ("SSL", free_port()),
            "OPEN": ("SASL_PLAINTEXT", free_port()),
        }
        self.sasl, self.mutual, self.misnamed, self.open = (
            f"{HOST}:{port}" for _, port in listeners.values()
        )
        self._write_certificates()
        users = [
            argument
            for mechanism in SCRAM
            for argument in ("--add-scram", f'{mechanism}=[name={USER},password="{PASSWORD}"]')
        ]
        try:
            self._broker = KafkaBroker(
                self._settings(), listeners=listeners, format_arguments=users
            )
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        self.plain = self._broker.bootstrap

    def start(self) -> None:
        """Start the broker, and return once it answers."""
        self._broker.start()

    def close(self) -> None:
        """Stop the broker and remove its files."""
        self._broker.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def ca(self) -> Path:
        """The CA that signed the broker's certificates."""
        return self.folder / "ca.pem"

    def _write_certificates(self) -> None:
        authority, stranger = trustme.CA(), trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca))
        stranger.cert_pem.write_to_path(str(self.folder / "other-ca.pem"))
        for name, host in (("server", HOST), ("misnamed", "other.example")):
            issued = authority.issue_cert(host)
            (self.folder / f"{name}.pem").write_bytes(
                _key(issued, NoEncryption()) + b"".join(p.bytes() for p in issued.cert_chain_pems)
            )
        for name, issuer in (("client", authority), ("stranger", stranger)):
            issued = issuer.issue_cert(f"{name}@example.org")
            chain = b"".join(p.bytes() for p in issued.cert_chain_pems)
            (self.folder / f"{name}.crt").write_bytes(chain)
            locked = BestAvailableEncryption(KEY_PASSWORD.encode())
            (self.folder / f"{name}.key").write_bytes(_key(issued, locked))

    def _settings(self) -> dict[str, str]:
        store = {"ssl.keystore.type": "PEM", "ssl.keystore.location": self.folder / "server.pem"}
        settings = {
            **store,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.misnamed.ssl.keystore.type": "PEM",
            "listener.name.misnamed.ssl.keystore.location": self.folder / "misnamed.pem",
        }
        for listener, mechanisms in (("sasl", list(_MODULES)), ("open", ["plain"])):
            prefix = f"listener.name.{listener}"
            settings[f"{prefix}.sasl.enabled.mechanisms"] = ",".join(mechanisms).upper()
            for mechanism in mechanisms:
                settings[f"{prefix}.{mechanism}.sasl.jaas.config"] = (
                    f"org.apache.kafka.common.security.{_MODULES[mechanism]};"
                )
        return {name: str(value) for name, value in settings.items()}


def _key(issued: trustme.LeafCert, encryption: KeySerializationEncryption) -> bytes:
    """Return a certificate's key as Kafka reads it: PKCS 8."""
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
