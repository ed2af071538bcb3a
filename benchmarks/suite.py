"""What a suite is: cases that are measured one by one, and a section written from their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any


def _nothing(suite: str) -> dict[str, Any]:
    raise LookupError(f"no results of {suite}")


@dataclass(frozen=True)
class Options:
    """How much to measure: ``quick`` for seconds instead of minutes, ``peers`` beside us or not.

    ``measured`` returns the cases of a suite that this one builds on, of this run or the last one;
    LookupError where there are none.
    """

    quick: bool = False
    peers: bool = True
    measured: Callable[[str], dict[str, Any]] = _nothing

    @property
    def repeats(self) -> int:
        """Timed runs of a peer; its calls take up to seconds."""
        return 2 if self.quick else 5

    @property
    def own_repeats(self) -> int:
        """Timed runs of our code, of milliseconds, before the peers, and again after them."""
        return 1 if self.quick else 20


@dataclass(frozen=True)
class Panel:
    """One pair of axes: ``series`` {label: (x, y)}, drawn as lines or, ``kind="bars"``, as bars.

    Bars have names for x, the same for every series; None leaves a bar or a point out.
    """

    title: str
    x: str
    y: str
    series: Mapping[str, tuple[Sequence[Any], Sequence[float | None]]]
    kind: str = "lines"
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Figure:
    """A picture beside the page, ``figures/NAME.svg``: panels in a row; ``alt`` says what it shows."""

    name: str
    alt: str
    panels: Sequence[Panel]


def no_figures(results: dict[str, Any]) -> list[Figure]:
    """Return no pictures."""
    return []


def no_lead(results: dict[str, Any]) -> str:
    """Return nothing."""
    return ""


@dataclass(frozen=True)
class Suite:
    """``cases`` {name: measure}; ``section`` writes Markdown, ``figures`` the pictures after it.

    Both are functions of {name: result} alone, as kept in ``results/NAME.json``. ``page`` is the
    document that shows them: "performance" is about time and bytes, "results" repeats experiments,
    "scale" is about large deployments. ``first``: others build on its results. ``lead`` writes what
    stands before it from the results of all suites, "" for nothing.
    """

    name: str
    title: str
    cases: Callable[[Options], dict[str, Callable[[], Any]]]
    section: Callable[[dict[str, Any]], str]
    page: str = "performance"
    figures: Callable[[dict[str, Any]], list[Figure]] = field(default=no_figures)
    first: bool = False
    lead: Callable[[dict[str, Any]], str] = field(default=no_lead)


def table(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a Markdown table; all columns but the first ``left`` are aligned right."""
    rule = [":--" if i < left else "--:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def spread(seconds: Sequence[float]) -> str:
    """Return half the distance of the quartiles as a share of the median."""
    ordered = sorted(seconds)
    last = len(ordered) - 1
    low, high = ordered[round(last * 0.25)], ordered[round(last * 0.75)]
    return f"±{50 * (high - low) / median(ordered):.0f} %"


def number(value: float) -> str:
    """Return three significant digits, with separators from a thousand."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def size(count: float) -> str:
    """Return bytes for people."""
    for unit in ("B", "KiB"):
        if count < 1024:
            return f"{number(count)} {unit}"
        count /= 1024
    return f"{number(count)} MiB"


def shape(columns: int, outputs: int) -> str:
    """Return "20 features, 1 output"."""
    return f"{columns} feature{'s' * (columns != 1)}, {outputs} output{'s' * (outputs != 1)}"
