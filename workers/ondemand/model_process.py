"""The process that a model lives in, seen from the worker: started, asked, watched, killed.

It is a new interpreter, not a fork of a worker full of threads: with the worker's import path, none of
its environment beyond what finds libraries and devices, and limits of its own. What it does wrong is an
error with a code here, never an end of the worker.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from attributary.schemas.explanation import ErrorCode
from attributary.workers import tether
from attributary.workers.ondemand.channel import Area, Ended, Frame, FrameSocket, Kind
from attributary.workers.ondemand.errors import OutOfMemoryError, RequestError
from attributary.workers.ondemand.limits import FILE_BYTES

Floats = npt.NDArray[np.float64]

_WATCH_SECONDS = 0.02
_END_SECONDS = 2.0
_TAIL_BYTES = 400
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from attributary.workers.ondemand.model_child import main; main(*map(int, sys.argv[2:]))"
)
_KEPT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SSL_CERT_FILE", "TZ")
_KEPT_PREFIXES = ("CUDA_", "NVIDIA_")

# The kernel ties a child to the thread that starts it: this one lives as long as the worker.
_starter = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="model-starter")


class ModelProcess:
    """One process with one open model. Calls come from one thread at a time, ``close`` from any."""

    def __init__(self, artefact: int | None, *, memory_bytes: int, threads: int) -> None:
        """Start it. ``artefact``: descriptor of the file's bytes; ``memory_bytes``: more ends it."""
        self._memory_bytes = memory_bytes
        self._ending = threading.Lock()
        self._ended = False
        self._question, self._answer = Area(), Area()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115
        ours, theirs = socket.socketpair()
        ours.settimeout(_WATCH_SECONDS)
        self._socket = FrameSocket(ours)
        keep = [theirs.fileno(), self._question.descriptor, self._answer.descriptor]
        keep.append(-1 if artefact is None else artefact)
        path = [os.path.abspath(entry) for entry in sys.path if entry]
        command = [sys.executable, "-I", "-c", _START, json.dumps(path), *map(str, keep)]
        with theirs:
            self._process = _starter.submit(
                tether.spawn,
                command,
                stdout=self._output,
                stderr=self._output,
                env=_environment(threads),
                pass_fds=[descriptor for descriptor in keep if descriptor >= 0],
            ).result()
        self._watched = psutil.Process(self._process.pid)
        self.about: dict[str, Any] = {}

    def open(self, description: Mapping[str, Any], seconds: float) -> None:
        """Let it open the model; ``about`` is what it says of it. It is closed where that fails.

        RequestError: what the loader found, model_not_loadable (the process ended), limit_exceeded.
        """
        wrong = ErrorCode.MODEL_NOT_LOADABLE
        try:
            text = json.dumps(description).encode()
            self.about = json.loads(
                self._ask(Kind.LOAD, text=text, seconds=seconds, wrong=wrong).text
            )
        except BaseException:
            self.close()
            raise

    @property
    def alive(self) -> bool:
        """Say whether it can be asked."""
        return not self._ended and not _has_ended(self._process)

    def evaluate(self, X: Floats, seconds: float) -> Floats:
        """Return the outputs (n,) or (n, c) of X (n, d), unchecked but of this shape."""
        return self._compute(Kind.CALL, X, seconds)

    def differentiate(self, X: Floats, seconds: float) -> Floats:
        """Return the derivatives (n, c, d) at X (n, d)."""
        return self._compute(Kind.GRADIENT, X, seconds)

    def measure(self, X: Floats, seconds: float) -> tuple[int, int, int] | None:
        """Return the memory in use at most while it evaluated X (n, d), what is free, and how many outputs
        a row has; None where it cannot tell."""
        frame = self._put(Kind.MEASURE, X, seconds)
        if frame.kind != Kind.MEASURED:
            raise self._break("it answered what was not asked")
        return frame.numbers if frame.numbers[2] else None

    def used(self, seconds: float) -> int | None:
        """Return the bytes in use on its device, by whomever; None where it cannot tell."""
        frame = self._ask(Kind.MEMORY, seconds=seconds)
        if frame.kind != Kind.USED:
            raise self._break("it answered what was not asked")
        return frame.numbers[0] or None

    def close(self) -> None:
        """Kill it with all that it started. A call under way raises RequestError (model_failed)."""
        with self._ending:
            if self._ended:
                return
            self._ended = True
            # Ends the wait of a call under way; the descriptor itself must stay until that is over.
            with contextlib.suppress(OSError):
                self._socket.raw.shutdown(socket.SHUT_RDWR)
            # Before it is waited for: until then nobody else can have its number.
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
            self._process.wait()

    def release(self) -> None:
        """Give back memory and descriptors. Only where no call can be under way."""
        self.close()
        self._socket.raw.close()
        self._question.close()
        self._answer.close()
        self._output.close()

    def _compute(self, kind: Kind, X: Floats, seconds: float) -> Floats:
        rows = len(X)
        frame = self._put(kind, X, seconds)
        if frame.kind == Kind.ROOM:
            self._answer.grow(frame.numbers[0])
            frame = self._ask(Kind.FETCH, seconds=seconds)
        count, outputs, inputs = frame.numbers
        shape = [rows] + [axis for axis in (outputs, inputs) if axis]
        if frame.kind != Kind.ANSWER or count != rows or (kind == Kind.CALL) == bool(inputs):
            raise self._break("it answered what was not asked")
        try:
            answer: Floats = self._answer.array(*shape).copy()
        except ValueError as error:
            raise self._break("it claims an answer larger than its memory") from error
        return answer

    def _put(self, kind: Kind, X: Floats, seconds: float) -> Frame:
        self._question.grow(X.nbytes)
        self._question.array(*X.shape)[:] = X
        return self._ask(kind, *X.shape, seconds=seconds)

    def _ask(
        self,
        kind: Kind,
        *numbers: int,
        text: bytes = b"",
        seconds: float,
        wrong: ErrorCode = ErrorCode.MODEL_FAILED,
    ) -> Frame:
        """Send a question, return its answer. A process that fails to give one is at its end."""
        try:
            self._socket.send(kind, *numbers, text=text)
            frame = self._wait(seconds)
        except Ended:
            words, killed = self._last_words()
            raise (OutOfMemoryError if killed else RequestError)(wrong, words) from None
        if frame.kind == Kind.FAILED:
            said = json.loads(frame.text)
            kind_of = OutOfMemoryError if said["out_of_memory"] else RequestError
            raise kind_of(ErrorCode(said["code"]), said["message"])
        return frame

    def _wait(self, seconds: float) -> Frame:
        end = time.monotonic() + seconds
        ended = False
        while True:
            try:
                return self._socket.receive()
            except TimeoutError:
                if ended:
                    raise Ended("the process has ended") from None
            # A child of its own may hold its end of the socket open. What it sent is still read.
            ended = _has_ended(self._process)
            if time.monotonic() > end:
                self.close()
                raise RequestError(
                    ErrorCode.LIMIT_EXCEEDED,
                    f"the model took more than {seconds:g} s; it was ended",
                )
            used = self.resident()
            if used > self._memory_bytes:
                self.close()
                raise OutOfMemoryError(
                    ErrorCode.LIMIT_EXCEEDED,
                    f"the model's process used {used} bytes of memory, the models' setting "
                    f"'memory_bytes' allows {self._memory_bytes}; it was ended",
                )

    def resident(self) -> int:
        """Return the bytes of main memory that it holds."""
        try:
            family = [self._watched]
            if not sys.platform.startswith("linux"):  # there it is the tether's watcher
                family += self._watched.children(recursive=True)
            return sum(process.memory_info().rss for process in family)
        except psutil.Error:
            return 0

    def _break(self, why: str) -> RequestError:
        self.close()
        return RequestError(ErrorCode.MODEL_FAILED, f"the model's process was ended: {why}")

    def _last_words(self) -> tuple[str, bool]:
        """Say how the process ended, with the end of what it printed; and whether it was killed from
        outside, the kernel's way to say that memory has run out."""
        if self._ended:
            return "the model was closed during the call", False
        end = time.monotonic() + _END_SECONDS
        while not _has_ended(self._process) and time.monotonic() < end:
            time.sleep(0.005)
        alone = _has_ended(self._process)
        self.close()
        code = self._process.returncode
        how = f"with exit code {code}"
        if code < 0:
            how = f"by {signal.Signals(-code).name}"
            if code == -signal.SIGXCPU:
                how += " (too much processor time)"
        said = self._tail()
        words = f"the model's process ended {how}" + (f"; its last words: {said}" if said else "")
        return words, alone and code == -signal.SIGKILL

    def _tail(self) -> str:
        size = min(os.fstat(self._output.fileno()).st_size, FILE_BYTES)
        data = os.pread(self._output.fileno(), _TAIL_BYTES, max(0, size - _TAIL_BYTES))
        text = data.decode(errors="replace").strip().rpartition("\n")[2]
        return "".join(c if c.isprintable() else "?" for c in text)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Say whether it has ended; where possible without reaping it, so that its number stays its own
    until its family is killed."""
    if process.returncode is None and sys.platform.startswith("linux"):
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, process.pid, options) is not None
    return process.poll() is not None


def _environment(threads: int) -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }
    number = str(threads)
    return {
        **kept,
        "HOME": "/nonexistent",
        # Torch looks for a folder to write to when it is imported: this one Landlock leaves.
        "TMPDIR": "/dev/shm",  # noqa: S108
        "OMP_NUM_THREADS": number,
        "OPENBLAS_NUM_THREADS": number,
        "MKL_NUM_THREADS": number,
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "CUDA_CACHE_DISABLE": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
