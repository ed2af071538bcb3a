"""TLS towards the broker: whom to trust, and who this client is."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from attributary.schemas.errors import ConfigurationError
from attributary.schemas.secret import reveal


class Tls(BaseModel):
    """Off unless ``enabled`` or a file is given. The broker's certificate is always verified."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    enabled: bool = Field(
        default=False, description="Encrypt; implied where another TLS setting is given."
    )
    ca_file: Path | None = Field(
        default=None,
        description="Certificates to trust instead of the system's, as PEM: the broker's own CA.",
    )
    cert_file: Path | None = Field(
        default=None, description="This client's certificate, as PEM, where the broker asks for it."
    )
    key_file: Path | None = Field(
        default=None, description="Its private key, as PEM; without it, the key is in cert_file."
    )
    key_password: SecretStr | None = Field(
        default=None, description="Password of an encrypted key; better in key_password_file."
    )
    key_password_file: Path | None = Field(default=None, description="File that holds it.")
    check_hostname: bool = Field(
        default=True,
        description="Whether the broker's certificate must be for the name that is connected to.",
    )

    @model_validator(mode="before")
    @classmethod
    def _implied(cls, data: Any) -> Any:
        """Turn TLS on where it is configured: plaintext would be a surprise then."""
        if not isinstance(data, dict):
            return data
        given = {name for name, value in data.items() if value is not None}
        return {"enabled": True, **data} if given - {"enabled", "check_hostname"} else data

    @model_validator(mode="after")
    def _together(self) -> Tls:
        key = [
            name
            for name in ("key_file", "key_password", "key_password_file")
            if getattr(self, name) is not None
        ]
        if key and self.cert_file is None:
            raise ValueError(
                f"connection.tls.{key[0]} is of no use without connection.tls.cert_file"
            )
        if self.key_password is not None and self.key_password_file is not None:
            raise ValueError(
                "set either connection.tls.key_password_file or connection.tls.key_password, not both"
            )
        return self

    def context(self) -> ssl.SSLContext:
        """Return the TLS context of a client; ConfigurationError where a file cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:  # SSLError is one
            raise ConfigurationError(
                f"connection.tls.ca_file {self.ca_file}: "
                + ("it holds no PEM certificate" if _is_ssl(error) else str(error.strerror))
            ) from None
        context.check_hostname = self.check_hostname
        if self.cert_file is not None:
            self._load(context, self.cert_file)
        return context

    def _load(self, context: ssl.SSLContext, cert_file: Path) -> None:
        asked = False

        def password() -> str:
            # Without this function OpenSSL would ask at the terminal.
            nonlocal asked
            asked = True
            if self.key_password is None and self.key_password_file is None:
                raise ConfigurationError(
                    f"the key {self.key_file or cert_file} is encrypted: give its password in "
                    "connection.tls.key_password_file"
                )
            return reveal("connection.tls.key_password", self.key_password, self.key_password_file)

        for name, file in (("cert_file", cert_file), ("key_file", self.key_file)):
            try:
                if file is not None:
                    file.open("rb").close()
            except OSError as error:
                raise ConfigurationError(
                    f"connection.tls.{name} {file}: {error.strerror}"
                ) from None
        try:
            context.load_cert_chain(cert_file, self.key_file, password)
        except (ssl.SSLError, ValueError) as error:
            key = self.key_file or cert_file
            reason = getattr(error, "reason", None) or ""
            if "MISMATCH" in reason:
                problem = f"the key {key} is not the one of the certificate {cert_file}"
            elif asked:
                problem = f"the key {key} cannot be read with the password that is given"
            else:
                problem = f"expected PEM: a certificate in {cert_file} and a private key in {key}"
            raise ConfigurationError(f"connection.tls: {problem}") from None


def _is_ssl(error: OSError) -> bool:
    return isinstance(error, ssl.SSLError)
