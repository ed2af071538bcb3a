"""SASL: how this client says who it is."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from attributary.schemas.secret import exactly_one, reveal

Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
_PASSWORD = ("username", "password", "password_file")
_CLIENT = ("token_url", "client_id", "client_secret", "client_secret_file", "scope")
_TOKEN = ("token_file", *_CLIENT, "token_ca_file")


class Sasl(BaseModel):
    """Off without ``mechanism``. Secrets are masked wherever the settings are shown."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    mechanism: Mechanism | None = Field(
        default=None, description="PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER."
    )
    username: str | None = Field(default=None, description="For PLAIN and SCRAM.")
    password: SecretStr | None = Field(
        default=None, description="Its password; better in password_file."
    )
    password_file: Path | None = Field(default=None, description="File that holds the password.")
    token_file: Path | None = Field(
        default=None, description="For OAUTHBEARER: file that holds the token, read as it changes."
    )
    token_url: str | None = Field(
        default=None, description="For OAUTHBEARER: endpoint that gives tokens (https)."
    )
    client_id: str | None = Field(default=None, description="Who asks the endpoint for tokens.")
    client_secret: SecretStr | None = Field(
        default=None, description="The client's secret; better in client_secret_file."
    )
    client_secret_file: Path | None = Field(default=None, description="File that holds the secret.")
    scope: str | None = Field(default=None, description="Scope to ask the endpoint for.")
    token_ca_file: Path | None = Field(
        default=None, description="Certificates to trust for the endpoint instead of the system's."
    )
    allow_plaintext: bool = Field(
        default=False,
        description="Allow SASL without TLS: only where nobody else can read the network.",
    )

    @field_validator("mechanism", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        """Accept any case; say what to use instead of Kerberos."""
        named = value.upper() if isinstance(value, str) else value
        if named == "GSSAPI":
            raise ValueError(
                "GSSAPI (Kerberos) is not supported: use SCRAM-SHA-512, SCRAM-SHA-256, OAUTHBEARER or PLAIN"
            )
        return named

    @field_validator("token_url")
    @classmethod
    def _private(cls, value: str | None) -> str | None:
        """Refuse an endpoint to which the client's secret would travel in the clear."""
        if value is None:
            return None
        parts = urlsplit(value)
        if parts.username is not None or parts.password is not None:
            raise ValueError(
                "no user or password in the address: they go to client_id and client_secret"
            )
        if not parts.hostname or parts.scheme not in ("https", "http"):
            raise ValueError("expected an address such as https://login.example.com/oauth2/token")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise ValueError(
                "the client's secret would travel in the clear: expected https (http is for loopback only)"
            )
        return value

    @model_validator(mode="after")
    def _together(self) -> Sasl:
        given = [name for name in (*_PASSWORD, *_TOKEN) if getattr(self, name) is not None]
        if self.mechanism is None:
            if given:
                raise ValueError(
                    f"connection.sasl.{given[0]} is given without connection.sasl.mechanism "
                    "(PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER)"
                )
            return self
        bearer = self.mechanism == "OAUTHBEARER"
        if foreign := [name for name in given if name in (_PASSWORD if bearer else _TOKEN)]:
            raise ValueError(f"connection.sasl.{foreign[0]} does not apply to {self.mechanism}")
        if bearer:
            self._check_token()
        else:
            if not self.username:
                raise ValueError(f"{self.mechanism} needs connection.sasl.username")
            exactly_one("connection.sasl.password", self.password, self.password_file)
        return self

    def _check_token(self) -> None:
        if (self.token_file is None) == (self.token_url is None):
            raise ValueError(
                "OAUTHBEARER needs one of connection.sasl.token_file and connection.sasl.token_url"
                + (", not both" if self.token_url else "")
            )
        if self.token_url is not None:
            if not self.client_id:
                raise ValueError("connection.sasl.token_url needs connection.sasl.client_id")
            exactly_one(
                "connection.sasl.client_secret", self.client_secret, self.client_secret_file
            )
        elif lost := [
            name for name in (*_CLIENT, "token_ca_file") if getattr(self, name) is not None
        ]:
            raise ValueError(
                f"connection.sasl.{lost[0]} goes with connection.sasl.token_url, not with token_file"
            )

    def secret(self) -> str:
        """Return the password; ConfigurationError where its file cannot be used."""
        return reveal("connection.sasl.password", self.password, self.password_file)

    def client_arguments(self) -> dict[str, Any]:
        """Return the arguments that every aiokafka client takes for this mechanism.

        ConfigurationError: a file cannot be used.
        """
        if self.mechanism is None:
            return {}
        from attributary.schemas.tokens import hide_handshakes, token_provider

        hide_handshakes()
        if self.mechanism == "OAUTHBEARER":
            provider = token_provider(self)
            provider.check()
            return {"sasl_mechanism": self.mechanism, "sasl_oauth_token_provider": provider}
        return {
            "sasl_mechanism": self.mechanism,
            "sasl_plain_username": self.username,
            "sasl_plain_password": self.secret(),
        }


def is_loopback(host: str) -> bool:
    """Whether a host's name or address is this machine's own."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
