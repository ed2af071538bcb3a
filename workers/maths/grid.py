"""The grid of one epoch: where the cells of every column lie, taken from a baseline sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.binning import checked_grid
from attributary.workers.maths.comovement import CoMovement
from attributary.workers.maths.quantiles import midhinge, quantiles

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

#: A cell column that holds more than this share of a window's weight is too coarse ...
LARGEST_SHARE = 0.25
#: ... unless the baseline held about as much there: it must exceed the baseline by this much.
LARGEST_EXCESS = 0.1875
#: Rows (their weight) below which a share says little.
FEWEST_ROWS = 64
#: Values spread over less than this share of their cell are one value, up to float32 cells.
_ATOM = 1e-4
#: So is what a cell blurs, its share times its spread, below this share of all that the edges span.
_NARROW = 1e-3


class Departed(NamedTuple):
    """Columns whose data has left the grid: features (d,) and outputs (c,)."""

    x: Flags
    y: Flags

    @property
    def any(self) -> bool:
        """Whether a new epoch is due."""
        return bool(self.x.any() or self.y.any())


@dataclass(frozen=True, eq=False)
class Grid:
    """Edges (columns, K - 1) and references (columns,) of features and outputs, and the epoch.

    Raises ValueError where edges are not finite and non-decreasing.

    >>> import numpy as np
    >>> grid = Grid.from_rows(np.arange(9.0)[:, None], np.arange(9.0)[:, None], cells=4)
    >>> grid.x_edges.tolist(), grid.x_reference.tolist()
    ([[2.0, 4.0, 6.0]], [4.0])
    """

    epoch: int
    x_edges: Floats
    y_edges: Floats
    x_reference: Floats
    y_reference: Floats

    def __post_init__(self) -> None:
        names = ("x_edges", "y_edges", "x_reference", "y_reference")
        kept = checked_grid(self.x_edges, self.y_edges, self.x_reference, self.y_reference)
        for name, values in zip(names, kept, strict=True):
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    @classmethod
    def from_rows(cls, X: npt.ArrayLike, Y: npt.ArrayLike, cells: int = 16, epoch: int = 0) -> Grid:
        """Return the grid whose edges are the quantiles 1/K ... (K - 1)/K of a baseline.

        ``X`` (n, d), ``Y`` (n, c); NaN and infinite entries are left out. Values that hold more than
        their share have a cell of their own, see ``edges_of``. A constant column has equal edges, a
        column without a finite value edges of zero. Fewer rows than cells are fine.
        """
        if not 2 <= cells <= 256:
            raise ValueError(f"a grid has 2 to 256 cells per column, got {cells}")
        x, y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
        if x.ndim != 2 or y.ndim != 2 or x.shape[0] != y.shape[0]:
            raise ValueError(f"expected X (n, d) and Y (n, c), got {x.shape} and {y.shape}")
        hinges = np.array([0.25, 0.75])
        x_edges, y_edges = (
            np.array([edges_of(column, cells) for column in part.T]).reshape(-1, cells - 1)
            for part in (x, y)
        )
        x_centre, y_centre = (
            np.nan_to_num(midhinge(quantiles(part, hinges)), nan=0.0) for part in (x, y)
        )
        return cls(epoch, x_edges, y_edges, x_centre, y_centre)

    @property
    def columns(self) -> int:
        """Number of features d."""
        return len(self.x_edges)

    @property
    def outputs(self) -> int:
        """Number of outputs c."""
        return len(self.y_edges)

    @property
    def cells(self) -> int:
        """Cells per column K."""
        return int(self.x_edges.shape[1]) + 1

    def comovement(self) -> CoMovement:
        """Return an empty accumulator on this grid."""
        return CoMovement(self.x_edges, self.y_edges, self.x_reference, self.y_reference)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grid):
            return NotImplemented
        return self.epoch == other.epoch and self.comovement().same_grid(other.comovement())

    def __hash__(self) -> int:
        return hash((self.epoch, self.x_edges.tobytes(), self.y_edges.tobytes()))

    def to_dict(self) -> dict[str, Any]:
        """Return the grid as numbers and lists; JSON keeps every bit of a float64."""
        return {
            "epoch": self.epoch,
            "x_edges": self.x_edges.tolist(),
            "y_edges": self.y_edges.tolist(),
            "x_reference": self.x_reference.tolist(),
            "y_reference": self.y_reference.tolist(),
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Grid:
        """Return the grid that ``to_dict`` wrote; ValueError for missing or unusable fields."""
        names = ("x_edges", "y_edges", "x_reference", "y_reference")
        missing = [name for name in ("epoch", *names) if name not in fields]
        if missing:
            raise ValueError(f"a grid needs the fields {missing}; got {sorted(fields)}")
        return cls(
            int(fields["epoch"]), *(np.array(fields[name], dtype=np.float64) for name in names)
        )


def edges_of(column: Floats, cells: int) -> Floats:
    """Return the ``cells`` - 1 edges of one column (n,), its finite values' quantiles.

    A value that holds more than 1/K of them has a cell of its own, up to it from the value below,
    and the others share the cells that are left: a crossed cell is exact only where it holds one
    value, and a midhinge likes to lie beside such values. K values or fewer have a cell each.
    """
    values = column[np.isfinite(column)]
    distinct, counts = np.unique(values, return_counts=True)
    if distinct.size <= cells:
        chosen = distinct[:-1] if distinct.size > 1 else distinct
        return _padded(chosen if chosen.size else np.zeros(1), cells - 1)
    heavy = counts * cells > values.size
    fixed: set[float] = set()
    for at in sorted(np.flatnonzero(heavy).tolist(), key=lambda index: -counts[index]):
        alone = fixed | set(distinct[max(at - 1, 0) : at + 1].tolist()) - {distinct[-1]}
        if len(alone) < cells:
            fixed = alone
    room = cells - 1 - len(fixed)
    rest = np.repeat(distinct[~heavy], counts[~heavy]) if fixed else values
    between: list[float] = []
    if room and rest.size:
        between = quantiles(rest[:, None], np.arange(1, room + 1) / (room + 1))[:, 0].tolist()
    return _padded(np.unique([*fixed, *between]), cells - 1)


def _padded(edges: Floats, size: int) -> Floats:
    return np.concatenate([edges, np.full(size - edges.size, edges[-1])])


def departed(state: CoMovement) -> Departed:
    """Say which columns of a window have left the grid that their cells are kept on.

    A column has left when one of its cell columns holds more than a quarter of its weight and at
    least 3/16 more than the baseline had there. Repeated values alone do not count, because their
    score is exact in any cell: a 0/1 column never leaves. Where the baseline was repeated values
    (a constant, say), what counts is the share that is spread over the cell. A new epoch is due
    then: a 3-sd step scored on the old grid is off by 6e-2, on its own grid by 6e-4.
    """
    x_by_output = state.cells[:2].sum(axis=-1)
    y_by_feature = state.cells[[0, 2]].sum(axis=-2)
    columns = np.arange(state.columns)
    outputs = np.arange(state.outputs)
    # Of the outputs that a feature was seen with, the one with the most rows; and the reverse.
    x_best = x_by_output[0].sum(axis=-1).argmax(axis=0) if state.outputs else columns[:0]
    y_best = y_by_feature[0].sum(axis=-1).argmax(axis=1) if state.columns else outputs[:0]
    return Departed(
        _coarse(x_by_output[:, x_best, columns], state.x_edges, *state.x_bounds()),
        _coarse(y_by_feature[:, outputs, y_best], state.y_edges, *state.y_bounds()),
    )


def _coarse(sums: Floats, edges: Floats, low: Floats, high: Floats) -> Flags:
    """Say which columns have a cell column that holds too much; ``sums`` (2, columns, K)."""
    weight, total = sums
    held = weight.sum(axis=-1, keepdims=True)
    share = weight / np.where(held > 0.0, held, 1.0)
    mean = total / np.where(weight > 0.0, weight, 1.0)
    width = high - low
    half = np.clip(np.minimum(mean - low, high - mean), 0.0, None)
    spread = np.divide(2.0 * half, width, out=np.zeros_like(width), where=width > 0.0)
    usual = 1.0 / weight.shape[-1]
    exceeded = share > np.maximum(LARGEST_SHARE, baseline_shares(edges) + LARGEST_EXCESS)
    blurred = share * spread > max(LARGEST_SHARE, usual + LARGEST_EXCESS)
    reach = _NARROW * (edges[:, -1:] - edges[:, :1])
    wide = (spread > _ATOM) & (share * 2.0 * half > reach)
    coarse = ((exceeded & wide) | blurred).any(axis=-1)
    left: Flags = coarse & (held[:, 0] >= FEWEST_ROWS)
    return left


def baseline_shares(edges: Floats) -> Floats:
    """Return the share of the baseline in each cell (columns, K), read off its quantile edges.

    A cell whose upper edge is repeated m times holds about m/K, the repetitions nothing.
    """
    columns, count = edges.shape
    shares = np.zeros((columns, count + 1))
    first = np.zeros(edges.shape, dtype=np.int64)
    for k in range(1, count):
        first[:, k] = np.where(edges[:, k] == edges[:, k - 1], first[:, k - 1], k)
    np.add.at(shares, (np.arange(columns)[:, None], first), 1.0 / (count + 1))
    shares[:, -1] += 1.0 / (count + 1)
    return shares
