"""An XGBoost that misbehaves: what a fault in a library, or in a file that a library trusts, may do.

A process that finds this folder before the real library gets it. Its models are ``{"how": ...}``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import sys
import tempfile
import time
from types import SimpleNamespace
from typing import Any

import numpy as np

core = SimpleNamespace(XGBoostError=ArithmeticError)


class Booster:
    """Adds its columns up, but does what the file says to a batch whose first value is negative."""

    feature_names = None

    def load_model(self, data: bytearray) -> None:
        self._how = json.loads(data)["how"]
        if self._how == "exit_on_load":
            os._exit(5)
        if self._how == "sleep_on_load":
            time.sleep(600)

    def save_config(self) -> str:
        return json.dumps({"learner": {"gradient_booster": {"name": "gbtree"}}})

    def set_param(self, _parameters: Any) -> None:
        pass

    def attr(self, _name: str) -> None:
        return None

    def num_features(self) -> int:
        return 2

    def inplace_predict(self, X: Any, **_options: Any) -> Any:
        if X[0, 0] < 0:
            return getattr(self, f"_{self._how}")(X)
        return X.sum(1)

    def _exit(self, X: Any) -> Any:
        print("leaving without a word", flush=True)
        os._exit(3)

    def _system_exit(self, X: Any) -> Any:
        sys.exit(1)

    def _crash(self, X: Any) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)

    def _kill(self, X: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    def _sleep(self, X: Any) -> Any:
        time.sleep(600)

    def _spin(self, X: Any) -> Any:
        while True:
            pass

    def _allocate(self, X: Any) -> Any:
        kept = []
        while True:
            kept.append(np.ones(2**22))

    def _heavy(self, X: Any) -> Any:
        """Take 8 MiB a row."""
        return np.ones((len(X), 2**20)).sum(1)

    def _leave_a_child(self, X: Any) -> Any:
        if (child := os.fork()) == 0:
            time.sleep(600)
        print(child, flush=True)
        os._exit(4)

    def _print(self, X: Any) -> Any:
        print("x" * 100_000)
        os.write(1, b"y" * 100_000)
        os.write(2, b"z" * 100_000)
        return X.sum(1)

    def _raise(self, X: Any) -> Any:
        raise ValueError("cannot divide the universe")

    def _nan(self, X: Any) -> Any:
        Y = X.sum(1)
        Y[[1, 3]] = np.nan, np.inf
        return Y

    def _short(self, X: Any) -> Any:
        return X.sum(1)[:-1]

    def _deep(self, X: Any) -> Any:
        return np.zeros((len(X), 2, 2, 2))

    def _wide(self, X: Any) -> Any:
        return np.zeros((len(X), 5000))

    def _other_width(self, X: Any) -> Any:
        return np.zeros((len(X), 3))

    def _text(self, X: Any) -> Any:
        return np.array(["yes"] * len(X))

    def _flood(self, X: Any) -> Any:
        for _ in range(64):
            os.write(1, bytes(2**20))

    def _write(self, X: Any) -> Any:
        with tempfile.TemporaryFile(dir=os.path.dirname(__file__)):
            pass

    def _execute(self, X: Any) -> Any:
        os.execv(sys.executable, [sys.executable, "-c", "pass"])  # noqa: S606

    def _connect(self, X: Any) -> Any:
        socket.create_connection(("127.0.0.1", 9)).close()

    def _signal(self, X: Any) -> Any:
        os.kill(os.getppid(), signal.SIGTERM)

    def _environment(self, X: Any) -> Any:
        raise ValueError(" ".join(sorted(os.environ)))

    def _forged(self, X: Any) -> Any:
        """Send an answer of its own, larger than the memory that it can be in."""
        os.write(_socket(), struct.pack("<B7xQQQQ", 6, len(X), 900, 0, 0))
        time.sleep(600)

    def _noise(self, X: Any) -> Any:
        os.write(_socket(), bytes(range(256)) * 64)
        time.sleep(600)

    def _shrink(self, X: Any) -> Any:
        """Try to take the shared memory away under the worker's feet."""
        for descriptor in range(3, 32):
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
        return X.sum(1)


def _socket() -> int:
    return next(fd for fd in range(3, 32) if os.readlink(f"/dev/fd/{fd}").startswith("socket:"))
