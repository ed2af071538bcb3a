"""A model of the model: a polynomial of who is present and where, whose OrdShap is known exactly.

It takes the predictable part out of the differences that sampling has to average (a control
variate): with z_i = 1 where unit i is present and t_i its place in [-1, 1],

    g = Σ_i θ_i(slot) z_i + Σ_{i<j} z_i z_j h_ij(t_i, t_j)

with h in the span of 1, sign(t_i - t_j), t_i, t_j and t_i t_j. Its γ needs no sampling:
γ_iℓ = θ_i(ℓ) + ½ Σ_j mean over slots k ≠ ℓ of h_ij(t_ℓ, t_k), because half of all orders of joining
put j before i. The more inputs there are, the richer the form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Pair = Callable[[Floats, Floats], Floats]

_PAIRS: list[Pair] = [
    lambda a, b: np.ones_like(a * b),
    lambda a, b: np.sign(a - b),
    lambda a, b: a + 0.0 * b,
    lambda a, b: b + 0.0 * a,
    lambda a, b: a * b,
]
#: Inputs per coefficient, and coefficients, above which a form is too rich.
ROWS_PER_COEFFICIENT = 3
COEFFICIENTS = 400
LINEAR_COEFFICIENTS = 1_200


@dataclass(frozen=True)
class Surrogate:
    """The form: ``place`` (m,) of the slots in [-1, 1], one θ per slot or a line, pair functions."""

    place: Floats
    per_slot: bool
    pairs: int

    @classmethod
    def for_rows(cls, place: Floats, rows: int) -> Surrogate | None:
        """Return the richest form that ``rows`` inputs can carry, None where they carry none."""
        for per_slot, pairs in ((True, 5), (False, 5), (False, 2), (False, 0)):
            form = cls(place, per_slot, pairs)
            limit = COEFFICIENTS if pairs else LINEAR_COEFFICIENTS
            if form.coefficients <= min(limit, rows / ROWS_PER_COEFFICIENT):
                return form
        return None

    @property
    def units(self) -> int:
        """How many units there are."""
        return len(self.place)

    @property
    def coefficients(self) -> int:
        """How many coefficients the form has."""
        m = self.units
        return m * (m if self.per_slot else 2) + self.pairs * (m * (m - 1) // 2)

    @cached_property
    def _pair(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        first, second = np.triu_indices(self.units, 1)
        return first.astype(np.int64), second.astype(np.int64)

    def features(self, slot: npt.NDArray[np.int64], member: npt.NDArray[np.bool_]) -> Floats:
        """Return the regressors (n, k, p) of coalitions ``member`` (n, k, m) under ``slot`` (n, m)."""
        z = member.astype(np.float64)
        place = self.place[slot]
        if self.per_slot:
            at = slot[:, :, None] == np.arange(self.units)
            parts = [(z[..., None] * at[:, None]).reshape(*z.shape[:2], -1)]
        else:
            parts = [z, z * place[:, None]]
        if self.pairs:
            first, second = self._pair
            both = z[..., first] * z[..., second]
            here, there = place[:, first], place[:, second]
            parts += [both * h(here, there)[:, None] for h in _PAIRS[: self.pairs]]
        return np.concatenate(parts, axis=-1)

    def gamma(self, coefficients: Floats) -> Floats:
        """Return γ (m, m), unit by slot, of the surrogate with these coefficients (p,)."""
        m, t = self.units, self.place
        if self.per_slot:
            gamma = np.array(coefficients[: m * m].reshape(m, m))
            rest = coefficients[m * m :]
        else:
            gamma = np.asarray(coefficients[:m, None] + coefficients[m : 2 * m, None] * t)
            rest = coefficients[2 * m :]
        if not self.pairs:
            return gamma
        first, second = self._pair
        other = (1.0 - np.eye(m)) / max(m - 1, 1)
        for h, c in zip(_PAIRS[: self.pairs], rest.reshape(self.pairs, -1), strict=True):
            table = h(t[:, None], t[None, :])  # [slot of the first, slot of the second]
            forward, backward = (table * other).sum(axis=1), (table * other).sum(axis=0)
            np.add.at(gamma, first, c[:, None] * forward / 2.0)
            np.add.at(gamma, second, c[:, None] * backward / 2.0)
        return gamma


def ridge(gram: Floats, moment: Floats, square: float, rows: int) -> Floats:
    """Return ridge coefficients (p,) from the sums XᵀX, Xᵀy, yᵀy; strength by cross-validation.

    Columns are scaled to equal spread first. The strength minimises the generalised
    cross-validation error; the strongest leaves next to nothing.
    """
    scale = np.sqrt(np.diag(gram) / max(rows, 1))
    scale[scale <= 1e-12 * scale.max(initial=1e-300)] = np.inf
    values, vectors = np.linalg.eigh(gram / np.outer(scale, scale))
    values = np.maximum(values, 0.0)
    along = vectors.T @ (moment / scale)
    best, chosen = np.inf, np.inf
    for strength in np.logspace(-5, 3, 17) * rows:
        freedom = float((values / (values + strength)).sum())
        shrunk = along / (values + strength)
        error = square - 2.0 * float(shrunk @ along) + float((values * shrunk) @ shrunk)
        score = error / max(1.0 - freedom / max(rows, 1), 1e-3) ** 2
        if score < best:
            best, chosen = score, strength
    found: Floats = vectors @ (along / (values + chosen)) / scale
    return found
