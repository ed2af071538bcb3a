"""Models held open, at most so many: the least recently used one that nobody uses closes first."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attributary.schemas.card import ModelCard
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.gateway import Gateway
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.ondemand.model_handle import ModelHandle
from attributary.workers.ondemand.options import OnDemandOptions


class _Slot:
    """One model: its gateway once it is open, and how many requests use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.gateway: Gateway | None = None
        self.users = 0


class ModelCache:
    """Opens models and keeps them, by what their cards say of the artefact."""

    def __init__(
        self,
        open_model: Callable[[ModelCard], ModelHandle],
        options: OnDemandOptions,
        metrics: OnDemandMetrics,
    ) -> None:
        self._open = open_model
        self._options = options
        self._metrics = metrics
        self._lock = threading.Lock()
        self._slots: OrderedDict[str, _Slot] = OrderedDict()
        self._used: dict[str, int] = {}

    @contextmanager
    def use(self, card: ModelCard) -> Iterator[Gateway]:
        """Give the model of a card, opened where it is not; RequestError where it cannot be."""
        key = self._key(card)
        with self._lock:
            slot = self._slots.setdefault(key, _Slot())
            self._slots.move_to_end(key)
            slot.users += 1
            closing = self._superfluous()
        for gateway in closing:
            gateway.close()
        try:
            with slot.lock:  # others that want the same model wait for it
                if slot.gateway is None:
                    slot.gateway = self._gateway(card)
                gateway = slot.gateway
            yield gateway
        finally:
            with self._lock:
                slot.users -= 1
                if slot.gateway is None and not slot.users:
                    self._slots.pop(key, None)
                self._count()

    def close(self) -> None:
        """Close every model."""
        with self._lock:
            slots, self._slots = list(self._slots.values()), OrderedDict()
        for slot in slots:
            if slot.gateway is not None:
                slot.gateway.close()

    def memory(self, device: str) -> float:
        """Return the bytes of memory in use where models compute: on "cpu" by their processes, on a CUDA
        device by all. While its models are busy, what was last known; NaN where they cannot tell.
        """
        with self._lock:
            gateways = [slot.gateway for slot in self._slots.values()]
        handles = [gateway.handle for gateway in gateways if gateway is not None]
        if device == "cpu":
            return sum(handle.resident() for handle in handles)
        there = [handle for handle in handles if handle.device == device]
        if not there:
            return 0.0
        for handle in there:
            if (used := handle.device_memory()) is not None:
                self._used[device] = used
                break
        return self._used.get(device, math.nan)

    @staticmethod
    def _key(card: ModelCard) -> str:
        declared = "" if card.artefact is None else card.artefact.model_dump_json()
        return f"{card.model}|{declared}|{[(f.name, f.levels) for f in card.features]}"

    def _superfluous(self) -> list[Gateway]:
        """Take out what is beyond the limit and unused, the least recent first."""
        closing = []
        for key, slot in list(self._slots.items()):
            if len(self._slots) <= self._options.models:
                break
            if not slot.users:
                del self._slots[key]
                if slot.gateway is not None:
                    closing.append(slot.gateway)
                    self._metrics.model_evictions.inc()
        return closing

    def _gateway(self, card: ModelCard) -> Gateway:
        metrics = self._metrics

        def open_model() -> ModelHandle:
            try:
                handle = self._open(card)
            except RequestError as error:
                metrics.model_loads.labels(card.model, error.code.value).inc()
                raise
            metrics.model_loads.labels(card.model, "opened").inc()
            return handle

        def evaluated(rows: int, calls: int) -> None:
            metrics.model_calls.labels(card.model).inc()
            metrics.model_rows.labels(card.model).inc(rows)
            metrics.joined.observe(calls)

        def sized(rows: int, halved: bool) -> None:
            metrics.batch_rows.labels(card.model).set(rows)
            if halved:
                metrics.halvings.labels(card.model).inc()

        return Gateway(
            open_model,
            batch_rows=self._options.batch_rows,
            tree_batch_rows=self._options.tree_batch_rows,
            device_batch_rows=self._options.device_batch_rows,
            evaluated=evaluated,
            sized=sized,
            busy=metrics.device_busy.call,
        )

    def _count(self) -> None:
        opened = sum(slot.gateway is not None for slot in self._slots.values())
        self._metrics.models_open.set(opened)
