"""The heavy steps of MCIR-M on a device, in float64, by torch where it is installed."""

from __future__ import annotations

import importlib
import logging
from typing import Any

import numpy as np

from attributary.workers.explainers.linear_algebra import Floats, Integers, Linalg, score_table
from attributary.workers.explainers.normal_scores import NormalScores

_log = logging.getLogger(__name__)

# Numbers at once in each of a few arrays on the device: 256 MB.
_NUMBERS_AT_ONCE = 1 << 25


class TorchLinalg:
    """A ``Linalg`` on a torch device; ImportError without torch."""

    def __init__(self, device: str) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._device = device

    def second_moments(self, ranks: NormalScores, counts: Integers, columns: Integers) -> Floats:
        """Return (b, m + 1, m + 1), see ``Linalg``; ranks, scores and products are made on the device."""
        torch, (resamples, n), m = self._torch, counts.shape, columns.size
        order, first, last = (
            self._put(side[columns]) for side in (ranks.order, ranks.first, ranks.last)
        )
        # Columns lie one after the other, each with a 0 before its n sums.
        offset = (n + 1) * torch.arange(m, device=self._device)[:, None]
        first, last = first + offset, last + offset
        table = self._put(score_table(int(counts[0].sum())))
        moments = np.empty((resamples, m + 1, m + 1))
        step = max(_NUMBERS_AT_ONCE // ((m + 1) * n), 1)
        for start in range(0, resamples, step):
            part = self._put(counts[start : start + step])
            upto = torch.nn.functional.pad(part[:, order].cumsum(-1), (1, 0)).flatten(1)
            Z = torch.nn.functional.pad(
                table[upto[:, first] + upto[:, last]], (0, 0, 0, 1), value=1.0
            )
            Z *= part.double().sqrt()[:, None, :]
            moments[start : start + step] = self._get(Z @ Z.mT)
        return moments

    def cholesky(self, blocks: Floats) -> Floats:
        """Return the lower factors of blocks (b, m, m).

        Raises numpy.linalg.LinAlgError where a block is not positive definite.
        """
        factor, failed = self._torch.linalg.cholesky_ex(self._put(blocks))
        if bool((failed != 0).any()):
            raise np.linalg.LinAlgError("a block is not positive definite")
        return self._get(factor)

    def _put(self, array: Floats | Integers) -> Any:
        return self._torch.as_tensor(array, device=self._device)

    def _get(self, tensor: Any) -> Floats:
        found: Floats = tensor.cpu().numpy()
        return found


def linalg_on(device: str) -> Linalg | None:
    """Return where to compute for "cpu" or "cuda:N"; None: numpy, also where torch has no such device."""
    if device == "cpu":
        return None
    try:
        linalg = TorchLinalg(device)
        linalg.cholesky(np.ones((1, 1, 1)))
    except (ImportError, RuntimeError, AssertionError) as error:
        _log.warning("mcir-m computes on the CPU: torch cannot use %s: %s", device, error)
        return None
    return linalg
