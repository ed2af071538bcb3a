"""How every client of this project reaches the broker."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from attributary.schemas.sasl import Sasl
from attributary.schemas.tls import Tls


class Connection(BaseModel):
    """The broker's address, as comma-separated host:port pairs, and how to be safe and known there."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    bootstrap: Annotated[str, Field(min_length=1)] = "localhost:9092"
    tls: Tls = Tls()
    sasl: Sasl = Sasl()

    @model_validator(mode="after")
    def _not_in_the_clear(self) -> Connection:
        if self.sasl.mechanism and not self.tls.enabled and not self.sasl.allow_plaintext:
            risk = {
                "PLAIN": "would send the password in the clear",
                "OAUTHBEARER": "would send the token in the clear",
            }.get(self.sasl.mechanism, "would let whoever reads the network guess the password")
            raise ValueError(
                f"SASL {self.sasl.mechanism} without TLS {risk}: set connection.tls.enabled = true, or "
                "connection.sasl.allow_plaintext = true where nobody else can read the network"
            )
        return self

    @property
    def security_protocol(self) -> str:
        """Kafka's name for the combination of TLS and SASL."""
        transport = "SSL" if self.tls.enabled else "PLAINTEXT"
        return f"SASL_{transport}" if self.sasl.mechanism else transport

    def client_arguments(self) -> dict[str, Any]:
        """Return the arguments that every aiokafka client takes.

        Certificates and secrets are read from their files now; ConfigurationError where one cannot be used.
        """
        arguments: dict[str, Any] = {"bootstrap_servers": self.bootstrap}
        if self.security_protocol != "PLAINTEXT":
            arguments["security_protocol"] = self.security_protocol
        if self.tls.enabled:
            arguments["ssl_context"] = self.tls.context()
        return {**arguments, **self.sasl.client_arguments()}
