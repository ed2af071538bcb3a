"""Results on disk: every case as it is measured, so that an interrupted run goes on where it was.

``unfinished.json`` holds the cases of a run that did not end; they count again only for the same
code, machine and form. When the run ends, each suite's cases move to its own file.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import attributary.workers.maths as maths


class Journal:
    """The cases of one run, ``folder/unfinished.json`` until it ends."""

    def __init__(self, folder: Path, key: dict[str, Any], *, fresh: bool) -> None:
        self.folder = folder
        self.key = key
        self._path = folder / "unfinished.json"
        self.cases: dict[str, Any] = {}
        if not fresh:
            self.cases = self._left()

    def _left(self) -> dict[str, Any]:
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        cases: dict[str, Any] = kept["cases"] if kept.get("key") == self.key else {}
        return cases

    def keep(self, name: str, result: Any) -> None:
        """Write down the result of a case."""
        self.cases[name] = result
        self.folder.mkdir(parents=True, exist_ok=True)
        _write(self._path, {"key": self.key, "cases": self.cases})

    def finish(self, suites: dict[str, list[str]], about: dict[str, Any]) -> None:
        """Write the file of every suite {name: its cases} and forget the run."""
        for suite, names in suites.items():
            cases = {name: self.cases[name] for name in names}
            _write(self.folder / f"{suite}.json", {**about, "suite": suite, "cases": cases})
        self._path.unlink(missing_ok=True)


def finished(folder: Path) -> dict[str, Any]:
    """Return {suite: its file} of every suite that was measured to its end."""
    found = {}
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        if "suite" in content:
            found[content["suite"]] = content
    return found


def code_digest() -> str:
    """Return a hash of the code under test and of the benchmarks."""
    (package,) = maths.__path__
    here = Path(__file__).parent
    digest = hashlib.sha256()
    for folder, pattern in ((Path(package), "*.py"), (here, "*.py"), (here / "peers", "*.py")):
        for path in sorted(folder.glob(pattern)):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _write(path: Path, content: Any) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)
