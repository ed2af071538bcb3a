"""Which cell a value falls in, and the scale-free units that cells are kept in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: Standardised values are clipped here, so that x²y² summed over 2⁶³ rows still is a float64.
LARGEST = 2.0**240
#: Exponents of the units stay where neither the unit nor its inverse overflows.
_EXPONENT = 1000
_LARGEST_K = 256


def assign(columns: Floats, edges: Floats) -> npt.NDArray[np.uint8]:
    """Return the cell of every value: the number of edges strictly below it.

    ``columns`` (d, n), ``edges`` (d, K - 1) non-decreasing, K <= 256. Cell k is (edge k-1, edge k],
    closed above, so that an atom on an edge ends its cell. Repeated edges leave empty cells.
    NaN falls in cell 0 and must be masked by the caller.

    K - 1 vectorised comparisons beat a binary search per column six times at K = 16.
    """
    cells = np.zeros(columns.shape, dtype=np.uint8)
    for k in range(edges.shape[1]):
        cells += (columns > edges[:, k : k + 1]).view(np.uint8)
    return cells


def hinges_of_edges(edges: Floats) -> Floats:
    """Return Q.25 and Q.75 (2, d) of columns whose quantiles 1/K ... (K-1)/K are ``edges``."""
    count = edges.shape[1]
    at = np.array([0.25, 0.75]) * (count + 1) - 1.0
    below = np.clip(np.floor(at).astype(int), 0, count - 1)
    above = np.minimum(below + 1, count - 1)
    share = np.clip(at - below, 0.0, 1.0)
    low, high = edges[:, below], edges[:, above]
    hinges: Floats = np.where(low == high, low, low * (1.0 - share) + high * share).T
    return hinges


def midhinge_of_edges(edges: Floats) -> Floats:
    """Return (Q.25 + Q.75) / 2 of the same columns (d,), halved first against overflow."""
    low, high = hinges_of_edges(edges)
    middle: Floats = low / 2.0 + high / 2.0
    return middle


def units_of_edges(edges: Floats) -> Floats:
    """Return a power of two per row of ``edges``, near the spread of that row.

    Powers of two scale without rounding. A row without spread takes its magnitude, or 1.
    """
    half_spread = edges[:, -1] / 2.0 - edges[:, 0] / 2.0
    size = np.where(half_spread > 0.0, half_spread, np.abs(edges[:, 0]))
    exponent = np.where(size > 0.0, np.frexp(size)[1], 0)
    unit: Floats = np.ldexp(1.0, np.clip(exponent, -_EXPONENT, _EXPONENT))
    return unit


def standardise(columns: Floats, reference: Floats, unit: Floats) -> Floats:
    """Return (columns - reference) / unit, clipped to +-LARGEST; reference and unit broadcast.

    Both terms are scaled before the subtraction: exact for powers of two, and 1e308 - (-1e308)
    does not overflow. Infinities are clipped as well; NaN stays.
    """
    inverse = 1.0 / unit
    with np.errstate(over="ignore", invalid="ignore"):
        values = columns * inverse
        values -= reference * inverse
        return np.clip(values, -LARGEST, LARGEST, out=values)


def checked_edges(name: str, edges: Floats) -> Floats:
    """Return ``edges`` (columns, K - 1) as a copy; ValueError unless finite and non-decreasing."""
    checked = np.array(edges, dtype=np.float64)
    if checked.ndim != 2 or not 1 <= checked.shape[1] < _LARGEST_K:
        raise ValueError(
            f"{name} must be (columns, K - 1) with 2 <= K <= {_LARGEST_K}, got {checked.shape}"
        )
    if not np.isfinite(checked).all() or (checked[:, 1:] < checked[:, :-1]).any():
        raise ValueError(f"{name} must be finite and non-decreasing in every row")
    return checked


def checked_grid(
    x_edges: Floats,
    y_edges: Floats,
    x_reference: Floats | None = None,
    y_reference: Floats | None = None,
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return copies of the edges of both sides and their references; ValueError where they do not fit."""
    x, y = checked_edges("x_edges", x_edges), checked_edges("y_edges", y_edges)
    if x.shape[1] != y.shape[1]:
        raise ValueError(
            f"x_edges {x.shape} and y_edges {y.shape} differ in their number of edges; "
            "both need K - 1 per row"
        )
    return (
        x,
        y,
        checked_reference("x_reference", x_reference, x),
        checked_reference("y_reference", y_reference, y),
    )


def checked_reference(name: str, given: Floats | None, edges: Floats) -> Floats:
    """Return the reference (columns,) of ``edges``, their midhinge where none is given."""
    if given is None:
        return midhinge_of_edges(edges)
    checked = np.array(given, dtype=np.float64)
    if checked.shape != (edges.shape[0],) or not np.isfinite(checked).all():
        raise ValueError(f"{name} must hold {edges.shape[0]} finite numbers, one for each column")
    return checked
