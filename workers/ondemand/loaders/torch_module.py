"""The one adapter between torch modules and arrays: device, precision, batches, derivatives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch

from attributary.schemas.explanation import ErrorCode
from attributary.workers.explainers.precisions import Precision
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.loaders.links import CLIP
from attributary.workers.ondemand.loaders.loaded import (
    Floats,
    LoadedModel,
    Source,
    not_loadable,
)

Inputs = Literal["numeric", "tokens"]
Call = Callable[[torch.Tensor], Any]


def device_of(source: Source) -> torch.device:
    """Return the device, set up so that two runs agree. RequestError: it is not there."""
    torch.set_num_threads(source.threads)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    device = torch.device(source.device)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise not_loadable(
            f"device {source.device} is not there: torch sees {torch.cuda.device_count()} CUDA devices"
        )
    return device


def adapt(
    call: Call,
    source: Source,
    device: torch.device,
    *,
    dtype: torch.dtype,
    inputs: Inputs = "numeric",
    features: int | None = None,
) -> LoadedModel:
    """Return ``call``, a module on ``device``, as a model of arrays.

    ``dtype``: what it computes in. Its answer is (n,), (n, 1) or (n, c); of several the head names one
    (a position in a tuple, a key of a mapping). Derivatives are by autograd, one pass per output; a model
    of tokens has none.
    """
    odds = source.link == "log-odds"
    cast = torch.int64 if inputs == "tokens" else dtype

    def move(X: Floats) -> torch.Tensor:
        if inputs == "tokens" and not (np.mod(X, 1) == 0).all():
            raise RequestError(ErrorCode.BAD_REQUEST, "the model takes tokens: whole numbers")
        # A copy: the array lies in memory that the next question overwrites.
        return torch.tensor(X, dtype=cast, device=device)

    def outputs(batch: torch.Tensor) -> torch.Tensor:
        with _autocast(source, device):
            Y = _select(call(batch), source.head)
        if not isinstance(Y, torch.Tensor):
            raise _bad(f"a {type(Y).__name__}")
        if Y.ndim not in (1, 2) or Y.shape[0] != batch.shape[0]:
            raise _bad(f"shape {tuple(Y.shape)} for {batch.shape[0]} rows")
        Y = Y.double()
        return _log_odds(Y) if odds else Y

    def predict(X: Floats) -> Floats:
        with torch.inference_mode():
            answer: Floats = outputs(move(X)).cpu().numpy()
        return answer

    def gradient(X: Floats) -> Floats:
        batch = move(X).requires_grad_()
        with torch.enable_grad():
            Y = outputs(batch)
            Y = Y[:, None] if Y.ndim == 1 else Y
            jacobian = np.empty((X.shape[0], Y.shape[1], X.shape[1]))
            for index in range(Y.shape[1]):
                # Rows do not see each other, so the sum's gradient holds every row's.
                (slope,) = torch.autograd.grad(
                    Y[:, index].sum(), batch, retain_graph=index + 1 < Y.shape[1], allow_unused=True
                )
                jacobian[:, index] = 0.0 if slope is None else slope.double().cpu().numpy()
        return jacobian

    meter = CudaMeter(device) if device.type == "cuda" else None
    return LoadedModel(
        predict=predict,
        precision=_precision(source, dtype),
        piecewise_constant=bool(source.piecewise_constant),
        features=features,
        gradient=gradient if inputs == "numeric" and not source.piecewise_constant else None,
        device=str(device),
        meter=meter,
        used=None if meter is None else meter.used,
    )


class CudaMeter:
    """The memory of a CUDA device, as torch's allocator counts it. A ``Meter``."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def reset(self) -> None:
        """Begin a new peak at what is used now."""
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak(self) -> int:
        """Return the most that was used since."""
        return int(torch.cuda.max_memory_allocated(self._device))

    def free(self) -> int:
        """Return what the device has left, and what torch holds without using it."""
        left, _ = torch.cuda.mem_get_info(self._device)
        held = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        return int(left + held)

    def used(self) -> int:
        """Return what is in use on the device, by whomever."""
        left, all_of_it = torch.cuda.mem_get_info(self._device)
        return int(all_of_it - left)

    def release(self) -> None:
        """Give back what torch holds without using it."""
        torch.cuda.empty_cache()


def dtype_of(tensors: Any) -> torch.dtype:
    """Return float64 where any weight is, else float32."""
    double = any(tensor.dtype == torch.float64 for tensor in tensors)
    return torch.float64 if double else torch.float32


def _autocast(source: Source, device: torch.device) -> Any:
    if source.mixed_precision == "off":
        return contextlib.nullcontext()
    return torch.autocast(device.type, getattr(torch, source.mixed_precision))


def _precision(source: Source, dtype: torch.dtype) -> Precision:
    """Return what is computed in: autocast leaves float64 alone."""
    if dtype == torch.float64:
        return "float64"
    return "float32" if source.mixed_precision == "off" else source.mixed_precision


def _select(answer: Any, head: str | None) -> Any:
    if isinstance(answer, torch.Tensor):
        return answer
    if isinstance(answer, tuple | list) and (head is None or head.isdigit()):
        position = int(head or 0)
        if (head is not None or len(answer) == 1) and position < len(answer):
            return answer[position]
    if isinstance(answer, dict) and head in answer:
        return answer[head]
    if isinstance(answer, dict):
        raise _bad(f"the outputs {', '.join(map(str, answer))}: name one in the artefact's 'head'")
    raise _bad(f"a {type(answer).__name__} of several: give a position in the artefact's 'head'")


def _log_odds(P: torch.Tensor) -> torch.Tensor:
    if P.ndim == 2 and P.shape[1] == 2:
        P = P[:, 1]
    return torch.logit(P, eps=CLIP)


def _bad(what: str) -> RequestError:
    return RequestError(
        ErrorCode.BAD_OUTPUT,
        f"the model answered with {what}, expected a tensor (n,) or (n, outputs)",
    )
