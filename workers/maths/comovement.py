"""The co-movement grid: mergeable sums that score CIR at a centre chosen afterwards.

The numerator N = Σ w x̃ỹ can be moved to any centre from moments; the denominator D = Σ w |x̃ỹ|
cannot, because rows change sign as the centre moves. Accumulating D about a running or a warm-up
centre is wrong by up to 3e-2 on skewed streams and 1.6e-1 after a step. So rows are summed in
K x K cells per (feature, output): a cell that no centre line crosses contributes exactly, one
that is crossed contributes an estimate from its mean and its bounds (see ``crossing``).

The error of a score needs Σ w²p² and Σ w²p|p|, p = x̃ỹ. The first is a polynomial of the centre in
nine moments. The second keeps the same nine moments with the sign of the row about the fixed
reference; the rows that lie between the reference and the centre, whose sign differs, are
corrected by the difference of the two cell estimates, which vanishes where the centre is the
reference. That is 18 numbers per pair instead of nine more in each of its 256 cells.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from attributary.workers.maths.binning import (
    assign,
    checked_grid,
    standardise,
    units_of_edges,
)
from attributary.workers.maths.cell_sums import cell_bounds, cell_sums
from attributary.workers.maths.comovement_bytes import decode, encode
from attributary.workers.maths.moments import pair_moments, recentred
from attributary.workers.maths.sums import CirSums

Floats = npt.NDArray[np.float64]

#: Cells that one block of features may hold: their sums then stay in the processor's cache.
_BLOCK_CELLS = 8192


class CoMovement:
    """Weighted cell sums of every (feature, output) pair on a fixed grid.

    ``x_edges`` (d, K - 1) and ``y_edges`` (c, K - 1) are non-decreasing rows of finite numbers,
    usually the quantiles 1/K ... (K - 1)/K of a baseline; repeated edges are fine.
    ``x_reference`` (d,) and ``y_reference`` (c,), the points that sums are taken about, default
    to the midhinge of the edges. Near the later centre, the error sums are the sharpest.

    A row whose feature is NaN or infinite is left out of that feature's sums, one whose output is
    NaN or infinite out of that output's.

    State, all float64, in units of a power of two per column and about the reference:
    ``cells`` (4, c, d, K, K) sums of w, wx, wy, wxy; ``moments`` (2, 3, 3, c, d) sums of
    w² xᵃ yᵇ, then the same times sign(x) sign(y); ``squares`` (3, c, d, K) sums of w², w²y, w²y²
    per x cell; ``x_mass`` (d, K), ``y_mass`` (c, K) weights per cell of one column alone;
    ``x_range`` (2, d), ``y_range`` (2, c) the least and the greatest value.

    >>> import numpy as np
    >>> grid = CoMovement(np.array([[1.0, 2.0, 3.0]]), np.array([[2.0, 3.0, 4.0]]))
    >>> grid.update(np.array([[0.0], [1], [2], [3], [4]]), np.array([[1.0], [2], [3], [4], [10]]))
    >>> N, D = grid.evaluate(np.array([2.0]), np.array([3.0]))
    >>> (N.item(), D.item())
    (20.0, 20.0)
    """

    def __init__(
        self,
        x_edges: Floats,
        y_edges: Floats,
        x_reference: Floats | None = None,
        y_reference: Floats | None = None,
    ) -> None:
        self.x_edges, self.y_edges, self.x_reference, self.y_reference = checked_grid(
            x_edges, y_edges, x_reference, y_reference
        )
        self.x_unit = units_of_edges(self.x_edges)
        self.y_unit = units_of_edges(self.y_edges)
        d, c, K = self.columns, self.outputs, self.size
        self.cells = np.zeros((4, c, d, K, K))
        self.moments = np.zeros((2, 3, 3, c, d))
        self.squares = np.zeros((3, c, d, K))
        self.x_mass = np.zeros((d, K))
        self.y_mass = np.zeros((c, K))
        self.x_range = np.array([np.full(d, np.inf), np.full(d, -np.inf)])
        self.y_range = np.array([np.full(c, np.inf), np.full(c, -np.inf)])
        #: Once False, weights were given: w² sums are then kept rather than read from the cells.
        self.unit_weights = True

    @property
    def columns(self) -> int:
        """Number of features d."""
        return len(self.x_edges)

    @property
    def outputs(self) -> int:
        """Number of outputs c."""
        return len(self.y_edges)

    @property
    def size(self) -> int:
        """Cells per column K."""
        return int(self.x_edges.shape[1]) + 1

    def update(self, X: Floats, Y: Floats, weights: Floats | None = None) -> None:
        """Add rows: ``X`` (n, d), ``Y`` (n, c), ``weights`` (n,) finite and >= 0, default 1."""
        columns = np.ascontiguousarray(np.asarray(X, dtype=np.float64).T)
        outputs = np.ascontiguousarray(np.asarray(Y, dtype=np.float64).T)
        n = columns.shape[-1]
        if columns.shape != (self.columns, n) or outputs.shape != (self.outputs, n):
            raise ValueError(
                f"expected X (n, {self.columns}) and Y (n, {self.outputs}), "
                f"got {np.shape(X)} and {np.shape(Y)}"
            )
        if weights is not None:
            weights = np.asarray(weights, dtype=np.float64)
            if weights.shape != (n,) or not (np.isfinite(weights).all() and (weights >= 0).all()):
                raise ValueError(f"weights must be {n} finite numbers >= 0, one for each row")
            self._keep_squares()
        if n == 0:
            return
        present = np.isfinite(outputs)
        y_cells = assign(outputs, self.y_edges).astype(np.int64)
        y = standardise(outputs, self.y_reference[:, None], self.y_unit[:, None])
        y[~present] = 0.0
        for o in range(self.outputs):
            self.y_mass[o] += _tally(y_cells[o], present[o], weights, self.size)
        _extend(self.y_range, y, present, slice(None))
        block = max(1, _BLOCK_CELLS // self.size**2)
        for start in range(0, self.columns, block):
            chosen = slice(start, min(start + block, self.columns))
            self._add(chosen, columns[chosen], y, y_cells, present, weights)

    def _add(
        self,
        chosen: slice,
        columns: Floats,
        y: Floats,
        y_cells: npt.NDArray[np.int64],
        present: npt.NDArray[np.bool_],
        weights: Floats | None,
    ) -> None:
        """Add the features ``chosen``, given feature by feature in ``columns`` (block, n)."""
        width, K = columns.shape[0], self.size
        known = np.isfinite(columns)
        complete = bool(known.all())
        x = standardise(columns, self.x_reference[chosen, None], self.x_unit[chosen, None])
        x_cells = assign(columns, self.x_edges[chosen]).astype(np.int64)
        x_cells += np.arange(0, width * K, K)[:, None]
        if not complete:
            x[~known] = 0.0
            x_cells[~known] = width * K
        _extend(self.x_range, x, known, chosen)
        self.moments[..., chosen] += pair_moments(
            x, None if complete else known, y, present, weights
        )
        # One slot more than there are cells takes the rows that are left out.
        total = (width * K + 1) * K
        tiled = None if weights is None else np.tile(weights, width)
        by_x = x_cells.ravel()
        mass = np.bincount(by_x, tiled, minlength=width * K)[: width * K]
        self.x_mass[chosen] += mass.reshape(width, K)
        flat_x = x.ravel()
        for o in range(self.outputs):
            place = x_cells * K
            place += y_cells[o]
            if not present[o].all():
                place[:, ~present[o]] = total - 1
            seen = by_x if present[o].all() else (place // K).ravel()
            where = place.ravel()
            flat_y = np.tile(y[o], width)
            for s, amount in enumerate((None, flat_x, flat_y, flat_x * flat_y)):
                if tiled is not None:
                    amount = tiled if amount is None else amount * tiled
                found = np.bincount(where, amount, minlength=total)[: width * K * K]
                self.cells[s, o, chosen] += found.reshape(width, K, K)
            for b in (2,) if self.unit_weights else (0, 1, 2):
                amount = flat_y**b if tiled is None else tiled * tiled * flat_y**b
                found = np.bincount(seen, amount, minlength=width * K)[: width * K]
                self.squares[b, o, chosen] += found.reshape(width, K)

    def _keep_squares(self) -> None:
        """Leave the state in which Σ w² and Σ w²y equal Σ w and Σ wy and are not kept."""
        if self.unit_weights:
            self.squares[:2] = self.cells[[0, 2]].sum(axis=-1)
            self.unit_weights = False

    def output_squares(self) -> Floats:
        """Return Σ w², Σ w²y, Σ w²y² per x cell, (3, c, d, K), y standardised."""
        if not self.unit_weights:
            return self.squares
        return np.concatenate([self.cells[[0, 2]].sum(axis=-1), self.squares[2:]])

    def same_grid(self, other: CoMovement) -> bool:
        """Say whether the sums of ``other`` may be added to these."""
        return (
            np.array_equal(self.x_edges, other.x_edges)
            and np.array_equal(self.y_edges, other.y_edges)
            and np.array_equal(self.x_reference, other.x_reference)
            and np.array_equal(self.y_reference, other.y_reference)
        )

    def merge(self, other: CoMovement) -> None:
        """Add the sums of ``other``; ValueError where its edges or references differ."""
        if not self.same_grid(other):
            raise ValueError(
                "cannot merge co-movement cells of two grids; evaluate each at the same centre "
                "and add the results"
            )
        if not (self.unit_weights and other.unit_weights):
            self._keep_squares()
            self.squares += other.output_squares()
        else:
            self.squares[2] += other.squares[2]
        self.cells += other.cells
        self.moments += other.moments
        self.x_mass += other.x_mass
        self.y_mass += other.y_mass
        for mine, its in ((self.x_range, other.x_range), (self.y_range, other.y_range)):
            np.minimum(mine[0], its[0], out=mine[0])
            np.maximum(mine[1], its[1], out=mine[1])

    def empty(self) -> CoMovement:
        """Return an accumulator of the same grid without rows."""
        return CoMovement(self.x_edges, self.y_edges, self.x_reference, self.y_reference)

    def copy(self) -> CoMovement:
        """Return an independent copy."""
        other = self.empty()
        other.merge(self)
        return other

    def scaled(self, factor: float) -> CoMovement:
        """Return a copy in which every row weighs ``factor`` times as much, factor >= 0."""
        other = self.copy()
        if factor == 1.0:
            return other
        other._keep_squares()
        other.cells *= factor
        other.x_mass *= factor
        other.y_mass *= factor
        other.moments *= factor * factor
        other.squares *= factor * factor
        return other

    def evaluate(self, x_centre: Floats, y_centre: Floats) -> tuple[Floats, Floats]:
        """Return N and D, both (c, d), about ``x_centre`` (d,) and ``y_centre`` (c,).

        In the columns' own units; see ``sums`` for the same in standard units, with error sums.
        """
        return self.sums(x_centre, y_centre).in_column_units()

    def sums(self, x_centre: Floats, y_centre: Floats) -> CirSums:
        """Return N, D, Σ w²p² and Σ w²p|p|, each (c, d), in standard units.

        A centre that is NaN (a column without values) is taken at the reference.
        """
        mx = _centre(x_centre, self.x_reference, self.x_unit)
        my = _centre(y_centre, self.y_reference, self.y_unit)
        shape = (self.outputs, self.columns)
        found = np.zeros((5, *shape))
        low_x, high_x = self.x_bounds()
        low_y, high_y = self.y_bounds()
        ratio = self._square_weight()
        block = max(1, _BLOCK_CELLS // self.size**2)
        for o in range(self.outputs):
            for start in range(0, self.columns, block):
                at = slice(start, min(start + block, self.columns))
                found[:, o, at] = cell_sums(
                    self.cells[:, o, at],
                    (low_x[at, :, None], high_x[at, :, None]),
                    (low_y[o], high_y[o]),
                    mx[at, None, None],
                    my[o],
                    None if ratio is None else ratio[o, at],
                )
        square, signed = recentred(self.moments, mx, my)
        square = np.maximum(square, 0.0)
        N, D, shift, weight, weight_square = found
        signed = np.clip(signed + shift, -square, square)
        return CirSums(N, D, square, signed, weight, weight_square, self.x_unit, self.y_unit)

    def _square_weight(self) -> Floats | None:
        """Return Σw²/Σw per x cell (c, d, K, 1), None where every weight is 1."""
        if self.unit_weights:
            return None
        mass = self.cells[0].sum(axis=-1)
        share = np.divide(self.squares[0], mass, out=np.zeros_like(mass), where=mass > 0.0)
        weight: Floats = share[..., None]
        return weight

    def x_bounds(self) -> tuple[Floats, Floats]:
        """Return the lower and upper bounds of the x cells (d, K), standardised.

        Outer cells end at the least and the greatest value seen.
        """
        return cell_bounds(self.x_edges, self.x_reference, self.x_unit, self.x_range)

    def y_bounds(self) -> tuple[Floats, Floats]:
        """Return the lower and upper bounds of the y cells (c, K), standardised."""
        return cell_bounds(self.y_edges, self.y_reference, self.y_unit, self.y_range)

    def to_bytes(self, dtype: npt.DTypeLike = np.float32) -> bytes:
        """Return the state as bytes, empty cells at about a bit each.

        ``dtype`` float32 keeps seven digits of every sum about the reference, float64 all.
        """
        return encode(self, np.dtype(dtype))

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> CoMovement:
        """Return the accumulator that ``to_bytes`` wrote; IncompatibleStateError otherwise."""
        edges, fill = decode(data)
        made = cls(*edges)
        fill(made)
        return made


def _centre(centre: Floats, reference: Floats, unit: Floats) -> Floats:
    given = np.asarray(centre, dtype=np.float64)
    if given.shape != reference.shape:
        raise ValueError(f"expected a centre for each of {reference.size} columns: {given.shape}")
    return standardise(np.where(np.isfinite(given), given, reference), reference, unit)


def _tally(
    cells: npt.NDArray[np.int64],
    present: npt.NDArray[np.bool_],
    weights: Floats | None,
    size: int,
) -> Floats:
    kept = None if weights is None else weights[present]
    return np.bincount(cells[present], kept, minlength=size).astype(np.float64)


def _extend(seen: Floats, values: Floats, present: npt.NDArray[np.bool_], chosen: slice) -> None:
    """Widen ``seen`` (2, columns) to hold the ``present`` entries of ``values`` (columns, n)."""
    if present.all():
        low, high = values.min(axis=1), values.max(axis=1)
    else:
        low = np.where(present, values, np.inf).min(axis=1)
        high = np.where(present, values, -np.inf).max(axis=1)
    seen[0, chosen] = np.minimum(seen[0, chosen], low)
    seen[1, chosen] = np.maximum(seen[1, chosen], high)
