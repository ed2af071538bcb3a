"""What a loader gets and what it returns."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from attributary.schemas.card import ModelFormat
from attributary.schemas.explanation import ErrorCode
from attributary.workers.explainers.precisions import Precision
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.memory_meter import Meter

Floats = npt.NDArray[np.float64]
Batched = Callable[[Floats], npt.NDArray[Any]]


@dataclass(frozen=True)
class Content:
    """An artefact's bytes, which ``descriptor`` holds (-1: a server's, none), and what they should be."""

    descriptor: int
    uri: str
    format: ModelFormat
    unpacked_bytes: int
    """What a compressed artefact may hold."""

    @cached_property
    def size(self) -> int:
        """How many bytes the artefact has."""
        return os.fstat(self.descriptor).st_size

    @property
    def path(self) -> str:
        """A name under which libraries can open the bytes."""
        return f"/dev/fd/{self.descriptor}"

    def read(self, length: int = -1) -> bytes:
        """Return the bytes, or the first ``length`` of them."""
        length = self.size if length < 0 else min(length, self.size)
        data = bytearray()
        while len(data) < length:
            more = os.pread(self.descriptor, length - len(data), len(data))
            if not more:
                break
            data += more
        return bytes(data)


@dataclass(frozen=True)
class Source(Content):
    """An artefact and how it is to be opened."""

    head: str | None
    link: Literal["identity", "log-odds"] | None
    piecewise_constant: bool | None
    names: list[str] | None
    """The card's features where each is one column of the model."""
    device: str
    threads: int
    mixed_precision: Literal["off", "bfloat16", "float16"]
    skops_trusted: list[str]
    response_bytes: int
    call_seconds: float
    load_seconds: float


@dataclass(frozen=True)
class LoadedModel:
    """An open model inside its process.

    ``predict``: (n, d) to (n,) or (n, c). ``gradient``: (n, d) to (n, c, d). ``precision``: what it computes
    in. ``features``: d where the model knows it. ``device``: where it really computes. ``meter``: of the
    device's memory, where that is not the main memory and the library tells. ``used``: the bytes in use
    there, by whomever.
    """

    predict: Batched
    precision: Precision
    piecewise_constant: bool = False
    features: int | None = None
    gradient: Batched | None = None
    device: str = "cpu"
    meter: Meter | None = None
    used: Callable[[], int] | None = None


def not_loadable(why: str) -> RequestError:
    """Return the error of an artefact that is not what it should be."""
    return RequestError(ErrorCode.MODEL_NOT_LOADABLE, why)


def check_names(source: Source, own: list[str] | None) -> None:
    """Refuse a model whose columns are the card's features in another order.

    Names that differ otherwise say nothing: training tables and cards are named by different people.
    """
    names = source.names
    if names and own and names != own and sorted(names) == sorted(own):
        raise not_loadable(
            f"the model takes its features in the order {', '.join(own[:20])}, the card lists them as "
            f"{', '.join(names[:20])}: register the card in the model's order"
        )


def check_head(source: Source, known: tuple[str, ...]) -> str:
    """Return the head that the card asks for, the first known one by default."""
    head = source.head or known[0]
    if head not in known:
        raise not_loadable(f"the artefact's head {head!r} is not one of {', '.join(known)}")
    return head
