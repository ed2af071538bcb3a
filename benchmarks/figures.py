"""Pictures of the results, drawn by matplotlib in an environment of its own."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import environments
from benchmarks.suite import Figure


def draw(figures: Sequence[Figure], folder: Path) -> list[str]:
    """Write ``folder/NAME.svg`` for each figure and return the names; none where it cannot be done.

    The same results give the same bytes.
    """
    if not figures:
        return []
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        asked = Path(scratch) / "figures.json"
        asked.write_text(json.dumps([asdict(figure) for figure in figures]), encoding="utf-8")
        try:
            python = environments.interpreter("figures")
            names: list[str] = environments.run(python, "figures", asked, folder.resolve())
        except environments.PeerError as error:
            print(f"  no figures: matplotlib {error}")
            return []
    return names
