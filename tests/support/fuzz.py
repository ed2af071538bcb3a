"""Messages that nobody should send: rows with anything in them, foreign formats, noise, and damage."""

from __future__ import annotations

import json
import math
import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from streams import NOW, arrow

from attributary.schemas.arrow import ARROW_CONTENT

#: The models whose names fuzzed rows bear most of the time.
MODELS = ("m", "n", "o", "p")


class Fuzzed(NamedTuple):
    """A record for the rows topic."""

    value: bytes | None
    headers: list[tuple[str, bytes]]
    key: bytes | None


def value(rng: random.Random, depth: int = 0) -> Any:
    """Return a feature's value, or what stands in its place."""
    kind = rng.randrange(13 if depth else 15)
    plain: list[Any] = [
        None,
        True,
        "",
        rng.choice(["a", "b", "ü", "\ud800", "x" * 50]),
        rng.choice([math.nan, math.inf, -math.inf]),
        rng.choice([1e308, -1e308, 5e-324]),
        rng.randint(-(10**30), 10**30),
    ]
    if kind < len(plain):
        return plain[kind]
    if kind < 13:
        return rng.gauss(0, 1)
    return [value(rng, 1)] if kind == 13 else {"a": value(rng, 1)}


def row(rng: random.Random, models: int = 20) -> dict[str, Any]:
    """Return a row; its model is one of MODELS or of so many more."""
    number = rng.gauss(0, 1)
    made = {
        "model": rng.choice([*MODELS, f"x{rng.randint(0, models)}"]),
        "features": {
            name: value(rng) for name in rng.sample(["a", "b", "c", "d", "k"], rng.randint(0, 5))
        },
        "outputs": rng.choice([number, [number], [number, None], {"y": number}, value(rng)]),
    }
    times = [0, -1e9, NOW / 1000 - rng.random() * 100, 2**53 - 1, -(2**53) + 1, value(rng)]
    for name, values, share in (
        ("time", times, 0.3),
        ("weight", [1, 2.5, 1e-12, 1e12, 1e300, 0, -1, value(rng)], 0.2),
        ("id", [value(rng)], 0.2),
    ):
        if rng.random() < share:
            made[name] = rng.choice(values)
    return made


def arrow_rows(rng: random.Random) -> tuple[bytes, int]:
    """Return an Arrow message and its rows."""
    size = rng.randint(1, 4)
    columns: dict[str, Any] = {"y": [rng.gauss(0, 1)] * size}
    for name in rng.sample(["a", "b", "k", "_id", "_time", "_weight"], rng.randint(0, 4)):
        try:
            columns[name] = pa.array([value(rng, 1) for _ in range(size)])
        except (pa.ArrowException, OverflowError, UnicodeError):
            continue
    return arrow(columns, model=rng.choice(MODELS)), size


def message(rng: random.Random) -> tuple[bytes, int]:
    """Return a message and how many rows it stands for."""
    kind = rng.random()
    if kind < 0.05:
        return rng.randbytes(rng.randint(0, 40)), 1
    if kind < 0.75:
        return json.dumps(row(rng)).encode(), 1
    if kind < 0.9:
        rows = [row(rng) for _ in range(rng.randint(1, 6))]
        return json.dumps(rows).encode(), len(rows)
    return arrow_rows(rng)


def _good(rng: random.Random) -> bytes:
    """Return rows that a serving process could send, with the odd value."""
    features: dict[str, Any] = {name: round(rng.gauss(0, 1), 3) for name in ("a", "b", "c", "d")}
    if rng.random() < 0.3:
        features[rng.choice("abcd")] = value(rng, 1)
    found = {"model": rng.choice(MODELS), "features": features, "outputs": [rng.gauss(0, 1)]}
    return json.dumps(found if rng.random() < 0.7 else [found] * rng.randint(1, 20)).encode()


_FOREIGN: tuple[Callable[[random.Random], bytes], ...] = (
    lambda rng: b"4.9,3.0,1.4,0.2,setosa\n" * rng.randint(1, 50),
    lambda rng: b"<row model='m'><a>1</a></row>",
    lambda rng: b'{"instances":[[1,2],[3,4]]}',
    lambda rng: b'{"id":"r1","inputs":[{"name":"x","shape":[1,2],"datatype":"FP32","data":[1,2]}]}',
    lambda rng: b'{"data":{"names":["a"],"ndarray":[[1]]}}',
    lambda rng: b"\x00\x00\x00\x00\x07\x02a\x00\x00\x80?" + rng.randbytes(8),
    lambda rng: pickle.dumps({"model": "m", "features": {"a": rng.random()}, "outputs": 1}),
    lambda rng: b"\x1f\x8b\x08\x00" + rng.randbytes(60),
    lambda rng: b"PAR1" + rng.randbytes(40) + b"PAR1",
    lambda rng: "\ufeff".encode() + json.dumps(row(rng)).encode(),
    lambda rng: json.dumps(row(rng)).encode("utf-16"),
    lambda rng: b"null",
    lambda rng: str(rng.randint(-(10**40), 10**40)).encode(),
    lambda rng: b'"a text"',
)


def _deep(rng: random.Random) -> bytes:
    depth = rng.choice([50, 2_000, 100_000])
    return rng.choice(
        [
            b"[" * depth,
            b"[" * depth + b"]" * depth,
            b'{"features":' * depth + b"1" + b"}" * depth,
            b'{"model":"m","outputs":1,"features":{"a":' + b"[" * depth + b"]" * depth + b"}}",
        ]
    )


def _long(rng: random.Random) -> bytes:
    size = rng.choice([1_000, 100_000])
    text = rng.choice(["x", "ü", "\u0000", "\\"]) * size
    features = rng.choice([{text: 1}, {"a": text}, {"a": 1, "b": text}])
    named = {"model": rng.choice(["m", text]), "features": features, "outputs": 1, "id": text}
    return json.dumps(named).encode()


def _huge(rng: random.Random) -> bytes:
    number = rng.choice(
        [b"1e400", b"-1e-400", b"9" * 5_000, b"0." + b"1" * 5_000, b"1e", b"--1", b"0x1"]
    )
    fields = [b"1", b"1", b"1", b"1"]
    fields[rng.randrange(4)] = number
    return b'{"model":"m","features":{"a":%s},"outputs":%s,"time":%s,"weight":%s}' % tuple(fields)


def _damaged(rng: random.Random) -> bytes:
    data = bytearray(rng.choice([_good, lambda r: arrow_rows(r)[0], lambda r: message(r)[0]])(rng))
    kind = rng.randrange(4)
    if kind == 0:
        del data[rng.randint(0, len(data)) :]
    elif kind == 1:
        for _ in range(rng.randint(1, 8)):
            if data:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == 2:
        at = rng.randint(0, len(data))
        data[at:at] = data[rng.randint(0, len(data)) :]
    else:
        at = rng.randint(0, len(data))
        data[at : at + rng.randint(0, 30)] = rng.randbytes(rng.randint(0, 30))
    return bytes(data)


_KINDS: Sequence[tuple[int, Callable[[random.Random], bytes | None]]] = (
    (35, _good),
    (25, lambda rng: message(rng)[0]),
    (10, lambda rng: arrow_rows(rng)[0]),
    (15, _damaged),
    (6, lambda rng: rng.choice(_FOREIGN)(rng)),
    (1, _deep),
    (1, _long),
    (2, _huge),
    (3, lambda rng: json.dumps(row(rng, models=100)).encode()),
    (1, lambda rng: rng.randbytes(rng.randint(0, 2_000))),
    (1, lambda rng: rng.choice([b"", b" ", b"\n\n", None])),
)
_HEADERS: Sequence[tuple[str, bytes]] = (
    ("content-type", b"application/json"),
    ("Content-Type", b"application/json; charset=utf-8"),
    ("content-type", ARROW_CONTENT.encode()),
    ("content-type", b"text/csv"),
    ("content-type", b"\xff\xfe"),
    ("content-type", b""),
    ("model", b"m"),
    ("model", b"\x00"),
    ("model", b"x" * 300),
    ("MODEL", "ü".encode()),
    ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("ce_id", b"1"),
    ("attributary-reason", b"none"),
    ("", b""),
)


def record(rng: random.Random) -> Fuzzed:
    """Return any of it, with headers that may be wrong."""
    (make,) = rng.choices([make for _, make in _KINDS], [share for share, _ in _KINDS])
    made = make(rng)
    headers = [] if rng.random() < 0.8 else rng.choices(_HEADERS, k=rng.randint(1, 4))
    key = rng.choice([None, b"", b"key", rng.randbytes(5)])
    return Fuzzed(made, headers, b"key" if made is None else key)


def rows_of(fuzzed: Fuzzed) -> int | None:
    """Return how many rows a message holds by libraries of others, None where they can tell of none."""
    data = fuzzed.value or b""
    # A name that is no UTF-8 does not matter where the name is not read.
    for text in (data, data.decode("utf-8", "replace")):
        try:
            found = json.loads(text)
            return len(found) if isinstance(found, list) else 1
        except (ValueError, RecursionError):
            continue
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            return int(reader.read_all().num_rows)
    except (pa.ArrowException, OSError, ValueError):
        return None
