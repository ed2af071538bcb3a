"""The tables of T-Explainer's experiments: overviews, wins and losses, every table and model."""

from __future__ import annotations

from statistics import median
from typing import Any

from benchmarks.suite import number, table

#: Measures of a method: key, name in the tables, whether less is better.
COLUMNS = (
    ("ris_max", "max RIS", True),
    ("ris_mean", "mean RIS", True),
    ("ros_max", "max ROS", True),
    ("ros_mean", "mean ROS", True),
    ("res", "RES", True),
    ("pgi_keep", "PGI, keep", False),
    ("pgi_delete", "PGI, delete", False),
    ("insertion", "insertion", False),
    ("deletion", "deletion", True),
    ("lap", "LAP", False),
    ("time", "ms a row", True),
)
#: Those that are scored against the background's mean too.
REFERRED = ("pgi_keep", "pgi_delete", "insertion", "deletion")
OURS = "T-Explainer"
PRINTED = "T-Explainer, slopes as printed"
AGAINST_ZERO = "T-Explainer, against zero"
#: Methods that need the inside of a model.
INSIDE = ("SHAP Tree", "Integrated Gradients", "Input × Gradient", "DeepLIFT")


def value(entry: dict[str, Any], key: str) -> float:
    """Return a measure of a method."""
    if key == "time":
        return 1e3 * median(entry["seconds"])
    return float(entry[key])


def cell(entry: dict[str, Any], key: str) -> str:
    """Return a measure with its standard error, where it is a mean over rows."""
    found = value(entry, key)
    error = entry["error"].get(key)
    if key == "lap":
        return f"{100 * found:.0f} ± {100 * error:.0f} %"
    return number(found) if error is None else f"{number(found)} ± {number(float(f'{error:.2g}'))}"


def best(entries: list[dict[str, Any]], key: str) -> float:
    """Return the best value of the methods that see only a callable."""
    (less,) = (less for name, _, less in COLUMNS if name == key)
    found = (value(entry, key) for entry in entries if entry["who"] not in INSIDE)
    return min(found) if less else max(found)


def _marked(entries: list[dict[str, Any]], entry: dict[str, Any], key: str) -> str:
    text = cell(entry, key)
    wins = entry["who"] not in INSIDE and value(entry, key) == best(entries, key)
    return f"**{text}**" if wins else text


def detailed(entries: list[dict[str, Any]]) -> str:
    """Return one table and model: explainers by measures."""
    return table(
        ["explainer", *(name for _, name, _ in COLUMNS)],
        [[e["who"], *(_marked(entries, e, key) for key, _, _ in COLUMNS)] for e in entries],
    )


def overviews(results: list[dict[str, Any]]) -> str:
    """Return one table a measure: explainers by tables and models."""
    names = list(dict.fromkeys(entry["who"] for r in results for entry in r["entries"]))
    parts = []
    for key, title, less in COLUMNS:
        lines = []
        for who in names:
            line = [who]
            for result in results:
                own = [entry for entry in result["entries"] if entry["who"] == who]
                line.append(_marked(result["entries"], own[0], key) if own else "")
            lines.append(line)
        head = ["explainer", *(f"{r['table']}, {r['model']}" for r in results)]
        better = "lower" if less else "higher"
        parts.append(f"#### {title} ({better} is better)\n\n{table(head, lines)}")
    return "\n\n".join(parts)


def verdict(own: dict[str, Any], entry: dict[str, Any], key: str, less: bool) -> int:
    """Return 1 where T-Explainer is better, -1 where worse, 0 within one standard error.

    The difference is of the same rows. A largest value or a time has no error: equal is a tie.
    """
    if key in entry["behind"]:
        more, error = entry["behind"][key]
    else:
        more, error = value(own, key) - value(entry, key), 0.0
    if abs(more) <= error:
        return 0
    return 1 if (more < 0.0) == less else -1


def standing(results: list[dict[str, Any]]) -> str:
    """Return how often T-Explainer's contributions win, tie and lose, and where against whom."""
    counts: dict[str, list[dict[int, int]]] = {}
    for result in results:
        (own,) = (entry for entry in result["entries"] if entry["who"] == OURS)
        for entry in result["entries"]:
            if entry["who"] in (OURS, PRINTED, AGAINST_ZERO):
                continue
            found = counts.setdefault(entry["who"], [{1: 0, 0: 0, -1: 0} for _ in COLUMNS])
            for count, (key, _, less) in zip(found, COLUMNS, strict=True):
                count[verdict(own, entry, key, less)] += 1
    if not counts:
        return "Measured alone, without the peers."
    lines = [
        [who, *(f"{one[1]} / {one[0]} / {one[-1]}" for one in found)]
        for who, found in sorted(counts.items(), key=lambda item: item[0] in INSIDE)
    ]
    return (
        "T-Explainer's contributions win / tie / lose, over tables and models. A tie is a difference on "
        "the same rows within its standard error; of largest values and times, only what is equal:\n\n"
        + table(["against", *(name for _, name, _ in COLUMNS)], lines)
    )


def references(results: list[dict[str, Any]]) -> str:
    """Return the measures that replace features, with 0 and with the background's mean, of networks."""
    ran = [result for result in results if result["model"] == "network"]
    if not ran:
        return ""
    names = [entry["who"] for entry in ran[0]["entries"]]
    titles = {key: title for key, title, _ in COLUMNS}
    lines = []
    for who in names:
        entries = [entry for r in ran for entry in r["entries"] if entry["who"] == who]
        line = [who]
        for key in REFERRED:
            for name in (key, f"{key}_centred"):
                line.append(f"{sum(entry[name] for entry in entries) / len(entries):.3f}")
        lines.append(line)
    head = [f"{titles[key]}, {of}" for key in REFERRED for of in ("0", "mean")]
    return (
        "What features are replaced with, 0 or the mean of the background; means over the networks:\n\n"
        + table(["explainer", *head], lines)
    )
