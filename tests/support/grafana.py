"""What dashboards ask for: their panels, also those that a row folds away, and their queries."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any


def panels_of(path: Path) -> list[dict[str, Any]]:
    """Return a dashboard's panels without its rows."""
    listed = json.loads(path.read_text())["panels"]
    every = [one for panel in listed for one in (panel, *panel.get("panels", []))]
    return [panel for panel in every if panel["type"] != "row"]


def expressions_of(path: Path) -> list[tuple[str, str]]:
    """Return every query of the panels, and where it is."""
    return [
        (f"{path.stem}: {panel['title']} {target['refId']}", target["expr"])
        for panel in panels_of(path)
        for target in panel["targets"]
    ]


def variables_of(path: Path) -> list[tuple[str, str]]:
    """Return what is asked for the values of each variable, as a query that counts them."""
    found = []
    for variable in json.loads(path.read_text())["templating"]["list"]:
        if variable["type"] == "query":
            asked = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            assert asked, variable["query"]
            where = f"{path.stem}: variable {variable['name']}"
            found.append((where, f"count by ({asked[2]}) ({asked[1]})"))
    return found
