"""The peers: each in a virtual environment of its own, run as a process on the rows we measure."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

import numpy as np

from attributary import workers

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / ".venv"
TIMEOUT = 1800.0


class PeerError(Exception):
    """A peer that could not be installed or did not run; the message is one line for the table."""


def interpreter(peer: str, *, alone: bool = False) -> Path:
    """Return the Python of the peer's environment, made when missing or when its pins changed.

    ``alone``: without what its packages ask for, where only their files are wanted.
    """
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
        [*command, *["--no-deps"] * alone, "-r", requirements],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PeerError(f"could not be installed: {_reason(done.stderr)}")
    stamp.write_text(wanted)
    return python


def run(python: Path, peer: str, *arguments: object) -> Any:
    """Run ``peers/run_PEER.py`` and return the JSON on the last line of its output.

    The script can import ``attributary.workers``, whatever its environment, and the files beside it.
    Raises PeerError when it fails or takes too long.
    """
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "attributary"
        package.mkdir()
        (package / "workers").symlink_to(Path(workers.__path__[0]).resolve())
        try:
            done = subprocess.run(
                [str(python), str(HERE / "peers" / f"run_{peer}.py"), *map(str, arguments)],
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
                env={**os.environ, "PYTHONPATH": folder},
            )
        except subprocess.TimeoutExpired:
            raise PeerError(f"did not finish within {TIMEOUT:.0f} s") from None
    if done.returncode:
        raise PeerError(f"did not run: {_reason(done.stderr)}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(peer: str, X: Any, Y: Any, repeats: int, share: float = 1.0) -> list[dict[str, Any]]:
    """Return the peer's entries on these rows, or one entry that says why there are none.

    ``share`` of the rows that a slow call usually gets, below 1 in the quick form.
    """
    try:
        python = interpreter(peer)
        with tempfile.TemporaryDirectory() as folder:
            rows = Path(folder) / "rows.npz"
            np.savez(rows, X=X, Y=Y)
            entries: list[dict[str, Any]] = run(python, peer, rows, repeats, share)
    except PeerError as error:
        return [{"who": peer, "failed": str(error)}]
    return entries


def _reason(output: str) -> str:
    """Return the last line that says something, without folders of this machine."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line]
    last = (errors or lines or ["no message"])[-1]
    return last.replace(str(HERE), "benchmarks").replace("|", "/")[:200]
