"""The heavy steps of MCIR-M on a device, in float64, by torch where it is installed."""

from __future__ import annotations

import importlib
import logging
from typing import Any

import numpy as np

from attributary.workers.explainers.gaussian_copula import Floats, Linalg

_log = logging.getLogger(__name__)


class TorchLinalg:
    """A ``Linalg`` on a torch device; ImportError without torch."""

    def __init__(self, device: str) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._device = device

    def gram(self, Z: Floats) -> Floats:
        """Return Z Zᵀ (k, k) of Z (k, n)."""
        on_device = self._put(Z)
        return self._get(on_device @ on_device.T)

    def cumulative_logdets(self, blocks: Floats) -> Floats:
        """Return (b, m): log-determinants of the leading 1..m rows and columns of blocks (b, m, m).

        Raises numpy.linalg.LinAlgError where a block is not positive definite.
        """
        factor, failed = self._torch.linalg.cholesky_ex(self._put(blocks))
        if bool((failed != 0).any()):
            raise np.linalg.LinAlgError("a block is not positive definite")
        diagonal = self._torch.diagonal(factor, dim1=-2, dim2=-1)
        return self._get(2 * diagonal.log().cumsum(dim=-1))

    def _put(self, array: Floats) -> Any:
        return self._torch.as_tensor(array, dtype=self._torch.float64, device=self._device)

    def _get(self, tensor: Any) -> Floats:
        found: Floats = tensor.cpu().numpy()
        return found


def linalg_on(device: str) -> Linalg | None:
    """Return where to compute for "cpu" or "cuda:N"; None: numpy, also where torch has no such device."""
    if device == "cpu":
        return None
    try:
        linalg = TorchLinalg(device)
        linalg.gram(np.ones((1, 1)))
    except (ImportError, RuntimeError, AssertionError) as error:
        _log.warning("mcir-m computes on the CPU: torch cannot use %s: %s", device, error)
        return None
    return linalg
