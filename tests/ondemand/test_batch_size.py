"""Batches as large as the free memory allows: chosen by rule, halved where it ran out, the same numbers."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from handles import FunctionHandle
from prometheus_client import CollectorRegistry

from attributary.schemas.card import Artefact, ModelCard
from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.batch_size import Footprint, rows_that_fit
from attributary.workers.ondemand.errors import OutOfMemoryError, RequestError
from attributary.workers.ondemand.free_memory import free_memory
from attributary.workers.ondemand.gateway import Gateway
from attributary.workers.ondemand.memory_meter import is_out_of_memory
from attributary.workers.ondemand.metrics import OnDemandMetrics
from attributary.workers.ondemand.model_cache import ModelCache
from attributary.workers.ondemand.options import OnDemandOptions

Floats = npt.NDArray[np.float64]


def nothing() -> None:
    return None


class Device(FunctionHandle):
    """A model on a device with ``memory`` bytes, of which a row takes ``row_bytes`` (said: ``told``)."""

    def __init__(
        self,
        memory: int,
        row_bytes: int,
        *,
        told: int | None = 0,
        device: str = "cuda:0",
        trees: bool = False,
        dies: bool = False,
    ) -> None:
        super().__init__(self.compute, piecewise_constant=trees)
        self.memory, self.row_bytes, self.dies = memory, row_bytes, dies
        self.device = device
        if told is not None:
            self.footprint = Footprint(told or row_bytes, memory)
        self.gradient = self.differentiate

    def take(self, X: Floats, times: int = 1) -> None:
        if times * len(X) * self.row_bytes > self.memory:
            if self.dies:
                self.alive = False
            raise OutOfMemoryError(ErrorCode.LIMIT_EXCEEDED, f"{len(X)} rows are too many")

    def compute(self, X: Floats) -> Floats:
        self.take(X)
        return np.column_stack([X.sum(axis=1), X[:, 0]])

    def differentiate(self, X: Floats) -> Floats:
        self.take(X, times=4)
        self.batches.append(X)
        return np.repeat(X[:, None], 2, axis=1)


def sizes(handle: FunctionHandle) -> list[int]:
    return [len(batch) for batch in handle.batches]


def gateway_of(handle: FunctionHandle, **options: object) -> Gateway:
    sizes = {"batch_rows": 32, "device_batch_rows": 512, "tree_batch_rows": 1000}
    return Gateway(lambda: handle, **{**sizes, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("row_bytes", "free", "rows"),
    [
        (100, 10**6, 512),
        (1000, 1024_000, 512),
        (1000, 1023_000, 256),
        (1000, 7_999, 2),
        (10**9, 1, 1),
    ],
)
def test_half_of_the_free_memory_is_for_a_batch(row_bytes: int, free: int, rows: int) -> None:
    assert rows_that_fit(Footprint(row_bytes, free), 512) == rows


def test_long_calls_on_a_gpu_go_in_batches_that_fill_its_memory() -> None:
    X = np.random.default_rng(0).normal(size=(700, 3))
    found = {}
    for memory in (10**9, 2 * 200 * 1000, 2 * 20 * 1000):
        handle = Device(memory, 1000)
        gateway = gateway_of(handle)
        found[memory] = gateway.evaluate(X, nothing)
        assert gateway.evaluate(X[:5], nothing).shape == (5, 2)
        gateway.close()
        expected = {10**9: [512] + 6 * [32] + [32], 400_000: 5 * [128] + 2 * [32] + [32]}
        assert sizes(handle) == expected.get(memory, 45 * [16])
        assert gateway.rows == {10**9: 512, 400_000: 128, 40_000: 16}[memory]
    for answer in found.values():
        assert np.array_equal(answer, np.column_stack([X.sum(axis=1), X[:, 0]]))


def test_large_batches_are_also_done_in_time() -> None:
    handle = Device(10**9, 1000)
    for timely, rows in ((100, 64), (3, 32), (10**6, 512)):
        handle.footprint = Footprint(1000, 10**9, timely)
        gateway = gateway_of(handle)
        gateway.evaluate(np.ones((600, 2)), nothing)
        assert gateway.rows == rows
        gateway.close()
        handle.alive = True


@pytest.mark.parametrize(("told", "device"), [(None, "cuda:0"), (0, "cpu"), (None, "server")])
def test_what_is_not_measured_or_has_no_device_gets_small_batches(
    told: int | None, device: str
) -> None:
    handle = Device(10**9, 1000, told=told, device=device)
    gateway = gateway_of(handle)
    gateway.evaluate(np.ones((600, 2)), nothing)
    gateway.close()
    assert set(sizes(handle)) == {32}


@pytest.mark.parametrize("dies", [False, True], ids=["raises", "dies"])
@pytest.mark.parametrize("trees", [False, True], ids=["smooth", "trees"])
def test_where_memory_runs_out_batches_are_halved_and_the_call_goes_on(
    dies: bool, trees: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It was told that a row takes a hundredth of what it does."""
    X = np.random.default_rng(1).normal(size=(600, 4))
    handles: list[Device] = []
    told: list[tuple[int, bool]] = []

    def opened() -> Device:
        handles.append(Device(100_000, 1000, told=10, trees=trees, dies=dies))
        return handles[-1]

    gateway = Gateway(
        opened,
        batch_rows=32,
        device_batch_rows=512,
        tree_batch_rows=512,
        sized=lambda rows, halved: told.append((rows, halved)),
    )
    with caplog.at_level(logging.WARNING):
        found = gateway.evaluate(X, nothing)
    assert np.array_equal(found, np.column_stack([X.sum(axis=1), X[:, 0]]))
    assert told == [(512, False), (256, True), (128, True), (64, True)]
    assert sum("halved" in record.message for record in caplog.records) == 3
    assert sizes(handles[-1])[-2:] == ([64, 24] if trees else [64, 32])
    before = sum(len(handle.batches) for handle in handles)
    gateway.evaluate(X[:64], nothing)
    assert sum(len(handle.batches) for handle in handles) == before + 1, "it stays at what fits"
    assert len(handles) == (4 if dies else 1)
    gateway.close()


def test_a_single_row_that_does_not_fit_is_an_error_and_spoils_nothing() -> None:
    handle = Device(100_000, 1000)
    gateway = gateway_of(handle)
    assert len(gateway.evaluate(np.ones((64, 2)), nothing)) == 64
    handle.row_bytes = 10**6
    with pytest.raises(RequestError, match=r"single row.*'memory_bytes'") as caught:
        gateway.evaluate(np.ones((64, 2)), nothing)
    assert caught.value.code == ErrorCode.LIMIT_EXCEEDED
    handle.row_bytes = 1000
    handle.batches.clear()
    gateway.evaluate(np.ones((64, 2)), nothing)
    assert sizes(handle) == [32, 32]
    gateway.close()


def test_derivatives_are_halved_on_their_own() -> None:
    handle = Device(10**5, 1000)
    gateway = gateway_of(handle)
    X = np.random.default_rng(2).normal(size=(70, 3))
    gateway.evaluate(X, nothing)
    handle.batches.clear()
    assert np.array_equal(gateway.differentiate(X), np.repeat(X[:, None], 2, axis=1))
    assert sizes(handle) == [16, 16, 16, 16, 6]
    assert gateway.rows == 32
    handle.row_bytes = 10**6
    with pytest.raises(RequestError, match="single row"):
        gateway.differentiate(X)
    gateway.close()


def test_halvings_are_counted_by_model() -> None:
    registry = CollectorRegistry()
    cache = ModelCache(
        lambda card: Device(100_000, 1000, told=10),
        OnDemandOptions(batch_rows=32, device_batch_rows=512),
        OnDemandMetrics.build(registry),
    )
    card = ModelCard(model="m", artefact=Artefact(uri="/m.onnx", sha256="0" * 64))
    with cache.use(card) as gateway:
        gateway.evaluate(np.ones((600, 2)), nothing)
    cache.close()
    name = "attributary_ondemand_batch_"
    assert registry.get_sample_value(name + "halvings_total", {"model": "m"}) == 3
    assert registry.get_sample_value(name + "rows", {"model": "m"}) == 64


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


MEMINFO = "MemTotal:       16000 kB\nMemAvailable:   9000 kB\n"


@pytest.mark.parametrize(
    ("files", "free"),
    [
        ({}, 9000 * 1024),
        (
            {  # version 2: the group above is the tighter one, of which a file cache could be dropped
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/b/memory.current": "1\n",
                "sys/fs/cgroup/a/memory.max": "5000000\n",
                "sys/fs/cgroup/a/memory.current": "3000000\n",
                "sys/fs/cgroup/a/memory.stat": "anon 1\ninactive_file 500000\n",
            },
            2_500_000,
        ),
        (
            {  # version 1, in a container that sees only the top
                "proc/self/cgroup": "4:memory:/docker/xyz\n1:cpu:/\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "4000000\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "3900000\n",
                "sys/fs/cgroup/memory/memory.stat": "inactive_file 7\ntotal_inactive_file 50000\n",
            },
            150_000,
        ),
        (
            {  # no limit at all
                "proc/self/cgroup": "4:memory:/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
            },
            9000 * 1024,
        ),
    ],
)
def test_free_memory_is_the_machines_and_the_groups(
    tmp_path: Path, files: dict[str, str], free: int
) -> None:
    assert free_memory(write(tmp_path, {"proc/meminfo": MEMINFO, **files})) == free
    assert free_memory(tmp_path / "nothing") is None


def test_errors_that_mean_too_little_memory() -> None:
    for said in (
        "std::bad_alloc",
        "[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: you tried to "
        "allocate 4 bytes.",
        "CUDA out of memory. Tried to allocate 20.00 MiB",
        "Failed to allocate memory for requested buffer of size 64",
    ):
        assert is_out_of_memory(RuntimeError(said))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(ValueError("the dictionary has no word 'allocation'"))
    assert not is_out_of_memory(SystemExit("out of memory"))
