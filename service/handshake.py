"""SASL over a blocking socket, to learn in the broker's own words why it lets this client in or not.

aiokafka logs why an authentication failed and raises that no broker could be reached.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct
from collections.abc import Callable, Generator

from attributary.schemas.sasl import Sasl

_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_NO_ERROR, _UNSUPPORTED_MECHANISM, _ILLEGAL_STATE = 0, 33, 34
_SCRAM_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MOST_ITERATIONS = 1_000_000

Conversation = Generator[bytes, bytes, str | None]
"""Yields what the client says, takes what the broker replies; returns why it must not go on, if so."""

Ask = Callable[[int, int, bytes], bytes]
"""Sends a request (its API key, version and body) and returns the body of the answer."""


def authenticate(ask: Ask, sasl: Sasl) -> str | None:
    """Return None once the broker accepts, else why it does not.

    ConfigurationError: a secret's file cannot be used. TokenError: there is no token. OSError, EOFError or
    struct.error: the broker ends the connection, or answers something else.
    """
    mechanism = sasl.mechanism or ""
    answer = ask(_SASL_HANDSHAKE, 1, _string(mechanism))
    (code,) = struct.unpack_from(">h", answer)
    if code == _UNSUPPORTED_MECHANISM:
        offered = ", ".join(_strings(answer, 2)) or "none"
        return f"it does not offer {mechanism}: connection.sasl.mechanism can be {offered}"
    if code == _ILLEGAL_STATE:
        return "it authenticates nobody at this port: leave connection.sasl away, or take its SASL port"
    if code != _NO_ERROR:
        return f"it refuses the SASL handshake (Kafka's error {code})"
    conversation = _conversation(sasl)
    message = next(conversation)
    while True:
        answer = ask(_SASL_AUTHENTICATE, 0, _bytes(message))
        (code,) = struct.unpack_from(">h", answer)
        said, after = _text(answer, 2)
        if code != _NO_ERROR:
            return f"it refuses {_who(sasl)}: {said or f'error {code}'}"
        try:
            message = conversation.send(_reply(answer, after))
        except StopIteration as end:
            problem: str | None = end.value
            return problem


def _who(sasl: Sasl) -> str:
    if sasl.mechanism == "OAUTHBEARER":
        return "the token"
    return f"user {sasl.username!r} or the password"


def _conversation(sasl: Sasl) -> Conversation:
    if sasl.mechanism == "OAUTHBEARER":
        return _bearer(sasl)
    if sasl.mechanism == "PLAIN":
        return _plain(sasl.username or "", sasl.secret())
    return _scram(_SCRAM_HASHES[sasl.mechanism or ""], sasl.username or "", sasl.secret())


def _plain(username: str, password: str) -> Conversation:
    """RFC 4616."""
    yield f"\0{username}\0{password}".encode()
    return None


def _bearer(sasl: Sasl) -> Conversation:
    """RFC 7628: the broker replies with nothing, or with why it does not take the token."""
    from attributary.schemas.tokens import token_provider

    reply = yield f"n,,\x01auth=Bearer {token_provider(sasl).current()}\x01\x01".encode()
    if reply:
        # The client must answer a refusal before the broker ends the exchange with its error.
        yield b"\x01"
        return f"it refuses the token: {reply[:200].decode(errors='replace')}"
    return None


def _scram(name: str, username: str, password: str) -> Conversation:
    """RFC 5802, without channel binding."""
    quoted = username.replace("=", "=3D").replace(",", "=2C")
    nonce = secrets.token_urlsafe(24)
    first = f"n={quoted},r={nonce}"
    server_first = (yield f"n,,{first}".encode()).decode(errors="replace")
    fields = dict(part.split("=", 1) for part in server_first.split(",") if "=" in part)
    try:
        salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
        joint = fields["r"]
    except (KeyError, ValueError):
        return "its SCRAM challenge cannot be read"
    if not joint.startswith(nonce) or not 1 <= rounds <= _MOST_ITERATIONS:
        return "its SCRAM challenge is not an answer to this client's"

    def keyed(key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, name).digest()

    salted = hashlib.pbkdf2_hmac(name, password.encode(), salt, rounds)
    final = f"c=biws,r={joint}"
    exchange = f"{first},{server_first},{final}".encode()
    client_key = keyed(salted, b"Client Key")
    signature = keyed(hashlib.new(name, client_key).digest(), exchange)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield f"{final},p={base64.b64encode(proof).decode()}".encode()
    expected = b"v=" + base64.b64encode(keyed(keyed(salted, b"Server Key"), exchange))
    if not hmac.compare_digest(server_final.split(b",")[0], expected):
        return "it does not know the password itself: it may not be the broker that it claims to be"
    return None


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def _text(data: bytes, at: int) -> tuple[str, int]:
    """Return a nullable string and where it ends."""
    (size,) = struct.unpack_from(">h", data, at)
    end = at + 2 + max(size, 0)
    return data[at + 2 : end].decode(errors="replace"), end


def _strings(data: bytes, at: int) -> list[str]:
    (count,) = struct.unpack_from(">i", data, at)
    found, at = [], at + 4
    for _ in range(min(count, 20)):
        text, at = _text(data, at)
        found.append(text)
    return found


def _reply(data: bytes, at: int) -> bytes:
    (size,) = struct.unpack_from(">i", data, at)
    return data[at + 4 : at + 4 + max(size, 0)]
