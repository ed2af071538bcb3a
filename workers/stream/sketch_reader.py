"""Reads the bodies of sketches and the windows of snapshots, each as what it says that it is."""

from __future__ import annotations

from collections.abc import Callable

from attributary.schemas.sketch import SketchHeader
from attributary.workers.maths.window import WindowState
from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.accumulators import Accumulators
from attributary.workers.stream.catalogue import ControlCatalogue
from attributary.workers.stream.epoch import Epoch


class SketchReader:
    """Both raise IncompatibleStateError for bytes that are not of their grid."""

    def __init__(self, catalogue: ControlCatalogue, accumulators: Accumulators) -> None:
        self._catalogue = catalogue
        self._accumulators = accumulators

    def of(self, header: SketchHeader) -> Callable[[bytes], WindowState]:
        """Return what reads the sketch's body, with an error where it is not what the header says."""
        epoch = self._catalogue.epoch_of(header.model, header.epoch)

        def read(body: bytes) -> WindowState:
            window = self._accumulators.window(body)
            if list(window.epochs) != [header.epoch]:
                raise IncompatibleStateError(f"the grids of the body are {list(window.epochs)}")
            if epoch is not None and not self._accumulators.fits(window, epoch):
                raise IncompatibleStateError(f"the body is not on the grid of epoch {header.epoch}")
            return window

        return read

    def saved(self, model: str, epoch: Epoch) -> Callable[[bytes], WindowState]:
        """Return what reads the model's windows of this epoch's layout, as ``to_bytes`` wrote them."""

        def load(data: bytes) -> WindowState:
            window = self._accumulators.saved(data)
            if not self._accumulators.fits(window, epoch):
                raise IncompatibleStateError(f"a window of {model!r} has other columns")
            return window

        return load
