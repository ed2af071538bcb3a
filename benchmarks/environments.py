"""The peers: each in a virtual environment of its own, run as a process on the rows we measure."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / ".venv"
TIMEOUT = 1800.0


class PeerError(Exception):
    """A peer that could not be installed or did not run; the message is one line for the table."""


def interpreter(peer: str) -> Path:
    """Return the Python of the peer's environment, made when missing or when its pins changed."""
    requirements = HERE / f"requirements-{peer}.txt"
    folder = ENVIRONMENTS / peer
    python, stamp = folder / "bin" / "python", folder / "stamp"
    wanted = hashlib.sha256(requirements.read_bytes() + sys.version.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    print(f"  installing {peer} into an environment of its own", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        venv.create(folder, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise PeerError(f"could not be installed: no virtual environment, {error}") from None
    command = [python, "-m", "pip", "--disable-pip-version-check", "-q", "install", "--no-compile"]
    done = subprocess.run(
        [*command, "-r", requirements], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PeerError(f"could not be installed: {_reason(done.stderr)}")
    stamp.write_text(wanted)
    return python


def measure(peer: str, X: Any, Y: Any, repeats: int, share: float = 1.0) -> list[dict[str, Any]]:
    """Return the peer's entries on these rows, or one entry that says why there are none.

    ``share`` of the rows that a slow call usually gets, below 1 in the quick form.
    """
    try:
        python = interpreter(peer)
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder) / "rows.npz"
            np.savez(rows, X=X, Y=Y)
            command = [str(python), str(HERE / "peers" / f"run_{peer}.py")]
            done = subprocess.run(
                [*command, str(rows), str(repeats), str(share)],
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        if done.returncode:
            raise PeerError(f"did not run: {_reason(done.stderr)}")
        entries: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    except PeerError as error:
        return [{"who": peer, "failed": str(error)}]
    except subprocess.TimeoutExpired:
        return [{"who": peer, "failed": f"did not finish within {TIMEOUT:.0f} s"}]
    return entries


def _reason(output: str) -> str:
    """Return the last line that says something, without folders of this machine."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line]
    last = (errors or lines or ["no message"])[-1]
    return last.replace(str(HERE), "benchmarks").replace("|", "/")[:200]
