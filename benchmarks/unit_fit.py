"""Unit costs of any shape, from those that were measured.

A cost is taken as measured where its shape was; else it is the sum of non-negative parts, for a fixed
share, for columns, for (feature, output) pairs, for cells and for profiles, fitted in relative error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from attributary.workers.stream.epoch import cells_for
from attributary.workers.stream.options import MergeOptions

# Features whose dependence profile is published: messages grow with them, and not with more.
_PROFILES = int(MergeOptions.model_fields["profile_features"].default)
#: Bytes of messages, of which there is one for each output.
_OF_ONE_OUTPUT = ("attribution_bytes", "drift_bytes")
#: Costs that grow with the rows themselves; the others flatten out.
_LINEAR = ("encode", "pane_memory")
RESULTS = Path(__file__).parent / "results"


class UnmeasuredError(Exception):
    """There are no unit costs; the message says what to run."""


@dataclass(frozen=True)
class Costs:
    """Seconds of one core, and bytes, of models of one shape; ``books`` and ``client`` hold for all shapes.

    ``per_sketch`` {name: values} at ``rows`` rows in a sketch.
    """

    columns: int
    outputs: int
    each: Mapping[str, float]
    rows: tuple[int, ...]
    per_sketch: Mapping[str, tuple[float, ...]]
    books: Mapping[str, float]
    client: Mapping[str, float]

    def sketch(self, name: str, rows: Any) -> Any:
        """Return a cost of sketches of so many rows, between those measured; the last holds beyond them.

        Linear in the rows where each of them costs something, else a power of them.
        """
        known, asked = np.array(self.rows, dtype=float), np.maximum(rows, 1.0)
        values = np.array(self.per_sketch[name])
        if name in _LINEAR:
            return np.interp(asked, known, values)
        least = np.finfo(float).tiny
        return np.exp(np.interp(np.log(asked), np.log(known), np.log(np.maximum(values, least))))


@dataclass(frozen=True)
class UnitCosts:
    """The cases of the suite ``unit-costs``."""

    cases: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not self._shapes or "unit costs, books" not in self.cases:
            raise UnmeasuredError("there are no unit costs: run `python -m benchmarks unit-costs`")

    @property
    def _shapes(self) -> list[dict[str, Any]]:
        return [case for case in self.cases.values() if "columns" in case]

    def of(self, columns: int, outputs: int) -> Costs:
        """Return the costs of a shape."""
        shapes = self._shapes
        exact = [s for s in shapes if (s["columns"], s["outputs"]) == (columns, outputs)]
        rows = tuple(entry["rows"] for entry in shapes[0]["sketches"])
        scalars = [k for k, v in shapes[0].items() if isinstance(v, float | int)]
        scalars = [k for k in scalars if k not in ("columns", "outputs", "cells")]
        curves = [k for k in shapes[0]["sketches"][0] if k != "rows"]

        def value(name: str, read: Any) -> float:
            if exact:
                return float(read(exact[0]))
            return _fitted(name, shapes, [read(shape) for shape in shapes], columns, outputs)

        return Costs(
            columns,
            outputs,
            {name: value(name, lambda shape, name=name: shape[name]) for name in scalars},
            rows,
            {
                name: tuple(
                    value(name, lambda shape, name=name, k=k: shape["sketches"][k][name])
                    for k in range(len(rows))
                )
                for name in curves
            },
            self.cases["unit costs, books"],
            self.cases["unit costs, client"],
        )


def _basis(name: str, columns: int, outputs: int) -> list[float]:
    profiled = min(columns, _PROFILES)
    if name in _OF_ONE_OUTPUT:
        return [1.0, columns, profiled]
    pairs, cells = columns * outputs, cells_for(columns, outputs)
    return [1.0, columns + outputs, pairs, pairs * cells**2, profiled * outputs]


def _fitted(
    name: str, shapes: list[dict[str, Any]], values: list[float], columns: int, outputs: int
) -> float:
    """Return the fit at a shape; values of 0, too short for the clock, weigh like the smallest other."""
    if not any(values):
        return 0.0
    basis = np.array([_basis(name, shape["columns"], shape["outputs"]) for shape in shapes])
    least = min(value for value in values if value > 0)
    weights = 1.0 / np.maximum(values, least)
    scale = np.abs(basis).max(axis=0)
    found, _ = nnls(basis / scale * weights[:, None], np.array(values) * weights)
    return float(np.array(_basis(name, columns, outputs)) / scale @ found)


def load(folder: Path = RESULTS) -> UnitCosts:
    """Return what the suite ``unit-costs`` left in a folder of results; UnmeasuredError without it."""
    path = folder / "unit-costs.json"
    try:
        cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
    except OSError:
        raise UnmeasuredError(
            f"no {path.name}: run `python -m benchmarks unit-costs` first"
        ) from None
    return UnitCosts(cases)
