"""Results on disk: every case as it is measured, so that an interrupted run goes on where it was.

``unfinished.json`` holds the cases of a run that did not end; they count again only for the same
code, machine and form. When the run ends, each suite's cases move to its own file.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from attributary.workers import explainers, maths


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

    def finish(
        self, suites: dict[str, list[str]], about: dict[str, Any], figures: dict[str, list[str]]
    ) -> None:
        """Write the file of every suite {name: its cases} and forget the run.

        ``figures`` {suite: names} are the pictures that were drawn.
        """
        for suite, names in suites.items():
            cases = {name: self.cases[name] for name in names}
            own = {"suite": suite, "figures": figures.get(suite, [])}
            _write(self.folder / f"{suite}.json", {**about, **own, "cases": cases})
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
    here = Path(__file__).parent
    folders = [
        *(Path(package.__path__[0]) for package in (maths, explainers)),
        here,
        here / "peers",
    ]
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _write(path: Path, content: Any) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    beside.replace(path)
