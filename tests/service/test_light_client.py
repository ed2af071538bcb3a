"""What importing the client loads, and in which thread the rest is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from attributary.service.embedded import free_port

_HEAVY = {"aiokafka", "asyncio", "multiprocessing", "numpy", "pydantic", "ssl"}
_NEVER = {
    "click", "faust", "mode", "pandas", "prometheus_client", "psutil", "pyarrow", "pydantic_settings",
    "rich", "scipy", "sklearn", "torch", "xgboost",
}  # fmt: skip
_EVERYTHING = "from attributary import Explainer, PredictionMiddleware, Publisher, subscribe"
_LOADED = "import json, sys; print(json.dumps(sorted(sys.modules)))"


def _run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
    )


def _loaded(*lines: str) -> list[str]:
    done = _run("\n".join([*lines, _LOADED]))
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout.splitlines()[-1])
    return found


def _roots(modules: list[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_importing_the_package_loads_none_of_its_dependencies() -> None:
    assert _roots(_loaded("import attributary")).isdisjoint({*_HEAVY, *_NEVER, "msgspec"})


def test_importing_the_client_loads_msgspec_and_nothing_heavier() -> None:
    modules = _loaded(_EVERYTHING, "import attributary.service.client")
    assert "msgspec" in modules
    assert _roots(modules).isdisjoint(_HEAVY | _NEVER)
    assert not [name for name in modules if name.startswith("attributary.workers")]
    # A guard against imports that nobody asked for: it takes a few more than a hundred.
    assert len(modules) < 250


def test_using_the_client_loads_no_more_than_the_base_install() -> None:
    modules = _loaded(
        _EVERYTHING, "Explainer(model='m'); subscribe()", "import attributary.service.sender"
    )
    assert {"aiokafka", "pydantic"} <= _roots(modules)
    assert _roots(modules).isdisjoint(_NEVER)


def test_rows_of_plain_python_load_no_numpy() -> None:
    modules = _loaded(
        "from attributary.service.row_encoder import RowEncoder",
        "from attributary.service.observed import observe, said",
        "encoder = RowEncoder('m', ['a', 'b'])",
        "rows = [[1.0, 2.0], [3.0, None]]",
        "assert encoder.encode(rows[0], [0.5]) and encoder.encode({'a': 1}, 0.5)",
        "assert len(list(encoder.encode_batch(rows, [0.5, 0.25]))) == 2",
        "assert len(list(encoder.encode_batch(observe(rows).features, said([0.5, 0.25])))) == 2",
        "assert observe(rows, ['x', 'y']).features == {'x': [1.0, 3.0], 'y': [2.0, None]}",
        "assert encoder.encode(observe(rows[0]).features, said([0.5]))",
    )
    assert "numpy" not in modules


_THREADS = """
import sys, threading, time

class Watching:
    loaded = {}
    def find_spec(self, name, path=None, target=None):
        self.loaded[name] = threading.current_thread().name

sys.meta_path.insert(0, Watching())
from attributary import Publisher

publisher = Publisher(sys.argv[1], model="m", exit_timeout=0.0)
publisher.publish({"a": 1.0}, 0.5)
deadline = time.monotonic() + 30
while publisher._sending._sender is None and time.monotonic() < deadline:
    time.sleep(0.01)
heavy = ("aiokafka", "asyncio", "pydantic", "ssl")
print(sorted({Watching.loaded.get(name) for name in heavy}))
"""


def test_the_thread_that_sends_loads_what_it_needs_and_not_the_caller() -> None:
    done = _run(_THREADS, f"127.0.0.1:{free_port()}")
    assert done.stdout == "['attributary-publisher']\n", done.stderr


_SLOW = """
import os, sys, threading, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "aiokafka":
            begun.set()
            time.sleep(0.3)

begun = threading.Event()
sys.meta_path.insert(0, Slow())
from attributary import Publisher

publisher = Publisher(sys.argv[1], model="m", exit_timeout=0.0)
publisher.publish({"a": 1.0}, 0.5)
assert begun.wait(30) and publisher._sending._sender is None
child = os.fork()
publisher.publish({"a": 1.0}, 0.5)
deadline = time.monotonic() + 10
while publisher._sending._sender is None and time.monotonic() < deadline:
    time.sleep(0.01)
found = (publisher._sending._sender is not None, publisher.pending)
if child:
    os.waitpid(child, 0)
print("parent" if child else "child", *found, flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_that_is_forked_while_the_client_is_loaded_can_send() -> None:
    done = _run(_SLOW, f"127.0.0.1:{free_port()}")
    assert sorted(done.stdout.splitlines()) == ["child True 1", "parent True 2"], done.stderr


_BROKEN = """
import sys, time

class Broken:
    times = 0
    def find_spec(self, name, path=None, target=None):
        if name == "aiokafka" and self.times < 2:
            Broken.times += 1
            raise ImportError("half installed")

sys.meta_path.insert(0, Broken())
from attributary import Publisher
from attributary.service import sending

sending._RETRY_SECONDS = 0.05
publisher = Publisher(sys.argv[1], model="m", exit_timeout=0.0)
assert publisher.publish({"a": 1.0}, 0.5)
deadline = time.monotonic() + 30
while publisher._sending._sender is None and time.monotonic() < deadline:
    time.sleep(0.01)
print(publisher.pending, Broken.times)
"""


def test_a_client_that_cannot_be_loaded_is_logged_once_and_tried_again() -> None:
    done = _run(_BROKEN, f"127.0.0.1:{free_port()}")
    assert done.stdout == "1 2\n", done.stderr
    assert done.stderr.count("cannot send rows") == 1
    assert "half installed" in done.stderr


@pytest.mark.parametrize("given", [5, b"localhost:9092", None])
def test_what_is_no_address_is_refused_without_a_thread(given: Any) -> None:
    from attributary import Publisher
    from attributary.schemas.errors import ConfigurationError

    with pytest.raises(ConfigurationError, match="expected the broker's address"):
        Publisher(given)
