"""What the client costs its caller: each call timed by itself, and what importing it takes.

Controls are timed beside our calls, in the same process and at the same pace: what a call of next to nothing
takes is what the machine takes.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from attributary import Publisher
from attributary.schemas.connection import Connection
from attributary.schemas.topics import Topics
from attributary.service.embedded import EmbeddedBroker, free_port
from attributary.service.settings import TopicLayout
from attributary.service.topics import create_topics
from benchmarks import environments
from benchmarks.peers.calls import FEATURES, percentiles, timed
from benchmarks.suite import Options, Suite, number, table

CALLS, QUICK_CALLS = 50_000, 300
#: Rows a second where they are not offered as fast as calls return.
PACE = 2000
BATCH = 100
#: Most microseconds of a call at the 99th percentile, and milliseconds of an import of ours.
P99_MOST, IMPORT_MOST = 50.0, 150.0

NAMES = [f"x{place}" for place in range(FEATURES)]
#: Statements, and whether they are ours; the others are what ours would take if they loaded it.
_IMPORTS = {
    "import attributary": True,
    "from attributary import Publisher": True,
    "from attributary import PredictionMiddleware": True,
    "from attributary import subscribe": True,
    "from attributary import Explainer": True,
    "import msgspec": False,
    "import aiokafka": False,
    "import pydantic": False,
    "import numpy": False,
}


@contextmanager
def _publisher(reached: bool) -> Iterator[Publisher]:
    """Give a publisher with room for every row; ``reached``: its broker is there."""
    options: dict[str, Any] = {"model": "m", "feature_names": NAMES, "exit_timeout": 0.0}
    room = {"max_rows": 10**7, "max_bytes": 2**32}
    if not reached:
        made = Publisher(f"127.0.0.1:{free_port()}", **options, **room)
        yield made
        made.close(0.0)
        return
    with EmbeddedBroker() as broker:
        connection = Connection(bootstrap=broker.bootstrap)
        asyncio.run(create_topics(connection, Topics(), TopicLayout()))
        with Publisher(connection, **options, **room) as made:
            yield made


def _ways(publisher: Publisher) -> dict[str, tuple[Callable[[], object], int]]:
    """Return what is called, and how many rows each call has."""
    rng = np.random.default_rng(0)
    vector = rng.standard_normal(FEATURES)
    row = dict(zip(NAMES, vector.tolist(), strict=True))
    matrix = rng.standard_normal((BATCH, FEATURES))
    answer, answers = np.array([0.5]), matrix[:, 0].copy()
    watched = publisher.watch(lambda features: answer)
    watched_batch = publisher.watch(lambda features: answers)
    one = vector[None, :]
    return {
        "publish, a dict": (lambda: publisher.publish(row, 0.5), 1),
        "publish, a numpy vector": (lambda: publisher.publish(vector, 0.5), 1),
        "watch, a matrix of one row": (lambda: watched(one), 1),
        f"publish_batch, a matrix of {BATCH} rows": (
            lambda: publisher.publish_batch(matrix, answers),
            BATCH,
        ),
        f"watch, a matrix of {BATCH} rows": (lambda: watched_batch(matrix), BATCH),
    }


def _controls() -> dict[str, Callable[[], object]]:
    """Return a call that does nothing, and one that does no more than keep a row."""
    row = dict.fromkeys(NAMES, 0.5)
    kept: deque[Any] = deque(maxlen=100_000)
    return {
        "nothing": lambda: None,
        "dict.copy, time.time and deque.append": lambda: kept.append(
            (row.copy(), 0.5, time.time())
        ),
    }


def measure(reached: bool, rate: int | None, options: Options) -> dict[str, Any]:
    """Time our calls one by one; ``rate`` rows a second are offered, None: as fast as they return."""
    calls = QUICK_CALLS if options.quick else CALLS
    entries = []
    with _publisher(reached) as publisher:
        for does, (call, rows) in _ways(publisher).items():
            count = max(20, calls // rows)
            pause = 0.0 if rate is None else rows / rate
            found = percentiles(timed(call, count, pause), rows)
            entries.append({"who": "attributary", "does": does, "rows": rows, **found})
            if publisher.dropped or publisher.invalid:
                raise RuntimeError(f"{publisher.dropped} rows dropped, {publisher.invalid} invalid")
        for does, call in _controls().items():
            found = percentiles(timed(call, calls, 0.0 if rate is None else 1 / rate), 1)
            entries.append({"who": "control", "does": does, "rows": 1, **found})
    return {"broker": reached, "rate": rate, "entries": entries}


def peers(rate: int | None, options: Options) -> dict[str, Any]:
    """Time what else puts a row into a buffer: the standard library, and librdkafka."""
    pause = 0.0 if rate is None else 1 / rate
    calls = QUICK_CALLS if options.quick else CALLS
    row = dict(zip(NAMES, np.random.default_rng(0).standard_normal(FEATURES).tolist(), strict=True))
    waiting: queue.Queue[bytes] = queue.Queue()

    def put() -> None:
        value = {"features": row, "outputs": 0.5, "time": round(time.time(), 3)}
        waiting.put_nowait(json.dumps(value).encode())

    mine = {"who": "standard library", "does": "json.dumps and queue.put_nowait, a dict"}
    entries: list[dict[str, Any]] = [
        {**mine, "rows": 1, **percentiles(timed(put, calls, pause), 1)}
    ]
    if options.peers:
        try:
            entries += environments.run(
                environments.interpreter("confluent"), "confluent", calls, pause
            )
        except environments.PeerError as error:
            entries.append({"who": "confluent-kafka", "failed": str(error)})
    return {"broker": False, "rate": rate, "entries": entries}


def imports(options: Options) -> dict[str, Any]:
    """Return the milliseconds that each import takes, in processes of their own.

    Bytecode is there from the second time on, as it is after an installation.
    """
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for statement in _IMPORTS:
            code = (
                f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
            )
            command = [sys.executable, "-c", code]
            times = [
                float(
                    subprocess.run(
                        command, capture_output=True, text=True, check=True, env=environment
                    ).stdout
                )
                for _ in range(3 if options.quick else 15)
            ]
            found[statement] = 1000 * median(times[1:])
    return found


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return our calls without a broker and with one, the peers, and the imports."""
    return {
        "client, imports": partial(imports, options),
        "client, no broker, as fast as it goes": partial(measure, False, None, options),
        "client, broker, 2,000 rows/s": partial(measure, True, PACE, options),
        "client, broker, as fast as it goes": partial(measure, True, None, options),
        "client, peers, 2,000 rows/s": partial(peers, PACE, options),
        "client, peers, as fast as they go": partial(peers, None, options),
    }


def section(results: dict[str, Any]) -> str:
    """Return the floors, the imports and a table of calls."""
    imported = results["client, imports"]
    measured = [result for result in results.values() if "entries" in result]
    own = [
        (result, entry)
        for result in measured
        for entry in result["entries"]
        if entry["who"] == "attributary" and entry["rows"] == 1
    ]
    floors = [
        *(
            _floor(f"ms of `{statement}`", IMPORT_MOST, imported[statement])
            for statement, ours in _IMPORTS.items()
            if ours and statement in imported
        ),
        *(
            _floor(f"µs of a row at p99: {entry['does']}, {_state(result)}", P99_MOST, entry["p99"])
            for result, entry in own
        ),
    ]
    lines = []
    for result in measured:
        for entry in result["entries"]:
            if "failed" in entry:
                lines.append([entry["who"], entry["failed"], *["–"] * 8])
                continue
            figures = [
                number(entry[key])
                for key in ("p50", "p99", "p999", "most", "processor50", "processor99")
            ]
            lines.append(
                [entry["who"], entry["does"], _state(result), f"{entry['calls']:,}", *figures]
            )
    head = [
        "who",
        "what",
        "broker",
        "calls",
        "p50",
        "p99",
        "p99.9",
        "longest",
        "own p50",
        "own p99",
    ]
    return "\n\n".join(
        [
            f"Rows of {FEATURES} features and one output. Each call is timed by itself, on the wall, in a "
            "process whose other thread sends the rows where there is a broker (in memory, on the same "
            "machine); microseconds, for each row of the call. The longest are what the other thread "
            "and the rest of the machine take at the wrong moment; `own` is the calling thread's processor "
            "time, which waits for nobody. Between calls at a pace the processor sleeps and its caches go to "
            "others, for every row of this table alike: compare with the controls, which do next to nothing "
            "in the same process, and with the peers at the same pace.",
            table(["floor", "at most", "measured", "met"], floors),
            table(
                ["import", "ms"], [[f"`{name}`", number(found)] for name, found in imported.items()]
            ),
            "The client loads msgspec alone. aiokafka and pydantic are loaded by the thread that sends, "
            "numpy by who has arrays.",
            table(head, lines, left=3),
        ]
    )


def _state(result: dict[str, Any]) -> str:
    pace = "flat out" if result["rate"] is None else f"{result['rate']:,} rows/s"
    return pace if result["broker"] else f"none, {pace}"


def _floor(what: str, most: float, found: float) -> list[str]:
    return [what, number(most), number(found), "yes" if found <= most else "**no**"]


SUITE = Suite("client", "The client: what a row costs its caller", cases, section)
