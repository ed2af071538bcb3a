"""Tokens for SASL OAUTHBEARER: from a file, or from an endpoint with a client's own credentials."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import logging
import re
import ssl
import threading
import time
import urllib.error
import urllib.request
from abc import abstractmethod
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote_plus, urlencode, urlsplit

from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError

from attributary.schemas.errors import ConfigurationError
from attributary.schemas.sasl import Sasl
from attributary.schemas.secret import read_text, reveal

_TOKEN = re.compile(r"[\x21-\x7e]+")
_ERROR_CODE = re.compile(r"[A-Za-z_]{1,60}")
_ANSWER_SECONDS = 10.0
_LARGEST_ANSWER = 2**20
_RETRY_SECONDS = 1.0
#: Where the endpoint does not say how long a token holds.
_DEFAULT_LIFETIME = 60.0
#: Share of its lifetime after which a token is renewed; until its end the old one serves.
_RENEWED_AFTER = 0.8


class TokenError(AuthenticationFailedError):  # type: ignore[misc]
    """No token now. aiokafka takes it for a connection that failed, and tries again."""


class _Tokens(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens that are got by blocking work, which is done beside the event loop."""

    async def token(self) -> str:
        """Return a token that holds now; TokenError where there is none."""
        return await asyncio.get_running_loop().run_in_executor(None, self.current)

    @abstractmethod
    def current(self) -> str:
        """Return a token that holds now. Blocking."""

    @abstractmethod
    def check(self) -> None:
        """Raise ConfigurationError where a file that is needed cannot be used."""


class FileToken(_Tokens):
    """The token in a file that somebody else renews: it is read for every connection."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def current(self) -> str:
        try:
            return self._read()
        except ConfigurationError as error:
            raise TokenError(str(error)) from None

    def check(self) -> None:
        self._read()

    def _read(self) -> str:
        source = f"connection.sasl.token_file {self._file}"
        token = read_text(source, self._file).strip()
        if not _TOKEN.fullmatch(token):
            raise ConfigurationError(f"{source}: expected one token of printable characters")
        return token


class ClientCredentials(_Tokens):
    """Tokens from an OAuth 2 endpoint, by client credentials (RFC 6749, 4.4), renewed before they end."""

    def __init__(self, sasl: Sasl) -> None:
        self._sasl = sasl
        self._url = sasl.token_url or ""
        # What is shown: a query may hold anything.
        parts = urlsplit(self._url)
        self._shown = f"{parts.scheme}://{parts.netloc}{parts.path}"
        self._lock = threading.Lock()
        self._token = ""
        self._renew_at = self._end = self._retry_at = 0.0
        self._failure = ""

    def current(self) -> str:
        with self._lock:  # one request for all connections that wait for a token
            now = time.time()
            if now >= self._renew_at and now >= self._retry_at:
                try:
                    self._fetch()
                except TokenError as error:
                    self._failure = error.args[0]
                    self._retry_at = time.time() + _RETRY_SECONDS
            if now < self._end:
                return self._token
            raise TokenError(self._failure)

    def check(self) -> None:
        self._secret()
        self._context()

    def _fetch(self) -> None:
        asked = time.time()
        try:
            answer = self._ask()
        except ConfigurationError as error:
            raise TokenError(str(error)) from None
        token, kind, lifetime = (
            answer.get(name) for name in ("access_token", "token_type", "expires_in")
        )
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise TokenError(f"the token endpoint {self._shown} gave no access_token")
        if str(kind).lower() not in ("bearer", "none"):
            raise TokenError(f"the token endpoint {self._shown} gave no bearer token")
        try:
            seconds = _DEFAULT_LIFETIME if lifetime is None else float(lifetime)
        except (TypeError, ValueError):
            seconds = _DEFAULT_LIFETIME
        self._token = token
        self._renew_at = asked + _RENEWED_AFTER * seconds
        self._end = asked + seconds

    def _ask(self) -> dict[str, Any]:
        """Return the endpoint's answer; TokenError says what went wrong, and nothing that is secret."""
        fields = {"grant_type": "client_credentials"}
        if self._sasl.scope is not None:
            fields["scope"] = self._sasl.scope
        pair = f"{quote_plus(self._sasl.client_id or '')}:{quote_plus(self._secret())}"
        request = urllib.request.Request(  # noqa: S310 - https, or http on loopback
            self._url,
            data=urlencode(fields).encode(),
            headers={
                "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
                "Accept": "application/json",
            },
        )
        try:
            with self._opener().open(request, timeout=_ANSWER_SECONDS) as response:
                answer = json.loads(response.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                code = _error_code(error)
            raise TokenError(
                f"the token endpoint {self._shown} answered {error.code}{code}"
            ) from None
        except urllib.error.URLError as error:
            raise TokenError(f"the token endpoint {self._shown}: {error.reason}") from None
        except OSError as error:
            raise TokenError(f"the token endpoint {self._shown}: {error}") from None
        except (ValueError, RecursionError):
            raise TokenError(f"the token endpoint {self._shown} gave no JSON") from None
        if not isinstance(answer, dict):
            raise TokenError(f"the token endpoint {self._shown} gave no JSON object")
        return answer

    def _opener(self) -> urllib.request.OpenerDirector:
        handlers: list[urllib.request.BaseHandler] = [_NoRedirect()]
        if urlsplit(self._url).scheme == "http":
            handlers.append(urllib.request.ProxyHandler({}))  # loopback: nobody in between
        else:
            handlers.append(urllib.request.HTTPSHandler(context=self._context()))
        return urllib.request.build_opener(*handlers)

    def _context(self) -> ssl.SSLContext:
        file = self._sasl.token_ca_file
        try:
            return ssl.create_default_context(cafile=file)
        except ssl.SSLError:
            raise ConfigurationError(
                f"connection.sasl.token_ca_file {file}: it holds no PEM certificate"
            ) from None
        except OSError as error:
            raise ConfigurationError(
                f"connection.sasl.token_ca_file {file}: {error.strerror}"
            ) from None

    def _secret(self) -> str:
        return reveal(
            "connection.sasl.client_secret", self._sasl.client_secret, self._sasl.client_secret_file
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: urllib would take the client's secret along to wherever it is sent."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> urllib.request.Request | None:
        return None


def _error_code(error: urllib.error.HTTPError) -> str:
    """Return OAuth's own word for the error (RFC 6749, 5.2); descriptions may quote anything."""
    try:
        answer = json.loads(error.read(_LARGEST_ANSWER))
        code = answer["error"]
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return ""
    return f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


@functools.lru_cache(maxsize=16)
def token_provider(sasl: Sasl) -> FileToken | ClientCredentials:
    """Return the tokens of these settings: one object, so that all clients of a process share them."""
    return ClientCredentials(sasl) if sasl.token_file is None else FileToken(sasl.token_file)


class _NoHandshakes(logging.Filter):
    """Drops what aiokafka logs, at level DEBUG, of SASL handshakes: the bytes hold the password."""

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else (record.args,)
        return not any("Sasl" in type(argument).__name__ for argument in arguments)


_no_handshakes = _NoHandshakes()


def hide_handshakes() -> None:
    """Keep SASL's bytes out of every log of this process."""
    logging.getLogger("aiokafka.conn").addFilter(_no_handshakes)  # adding it again changes nothing
