"""OrdShap's own time: what is not the model's, for a transformer on the CPU, by length and batch size."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from attributary.workers.explainers.ordshap import ordshap
from benchmarks.suite import Options, Suite, number, table

LENGTHS, BATCHES = (8, 32, 150), (16, 64, 256)
#: The case that has a floor: its length and batch sizes, and the highest share outside the model.
LENGTH, FLOOR_BATCHES, FLOOR = 150, (64, 256), 0.10
WORDS, WIDTH, LAYERS = 1_000, 64, 3


class Timed:
    """A three-layer transformer with random weights, and the processor time that it has taken."""

    def __init__(self, length: int) -> None:
        import torch

        torch.manual_seed(0)
        self._torch = torch
        self._token = torch.nn.Embedding(WORDS, WIDTH)
        self._place = torch.randn(length, WIDTH) * 0.3
        layer = torch.nn.TransformerEncoderLayer(
            WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, activation="gelu"
        )
        self._layers = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).eval()
        self._out = torch.nn.Linear(WIDTH, 1)
        self.seconds = 0.0

    def __call__(self, rows: Any) -> Any:
        """Return the outputs (n,) of token rows (n, length)."""
        start = time.process_time()
        with self._torch.inference_mode():
            inner = self._layers(self._token(self._torch.as_tensor(rows)) + self._place)
            outputs = self._out(inner.mean(dim=1))[:, 0].numpy()
        self.seconds += time.process_time() - start
        return outputs


def measure(length: int, batch_size: int, permutations: int) -> dict[str, Any]:
    """Time one explanation; processor time of all threads, so that other work counts less."""
    if find_spec("torch") is None:
        return {"failed": "torch is not installed (the extra `ondemand` brings it)"}
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = Timed(length)
        x = np.random.default_rng(8).integers(1, WORDS, size=length)
        model(np.tile(x, (batch_size, 1)))
        model.seconds = 0.0
        start = time.process_time()
        found = ordshap(model, x, mask=0, n_permutations=permutations, batch_size=batch_size)
        total = time.process_time() - start
    finally:
        torch.set_num_threads(threads)
    return {
        "length": length,
        "batch_size": batch_size,
        "calls": found.model_calls,
        "seconds": total,
        "model_seconds": model.seconds,
    }


def cases(options: Options) -> dict[str, Callable[[], Any]]:
    """Return one case for each length and batch size."""
    lengths, batches = ((8, 16), (16, 64)) if options.quick else (LENGTHS, BATCHES)
    return {
        f"OrdShap overhead, {length} tokens, batches of {size}": partial(
            measure, length, size, 16 if options.quick else 48
        )
        for length in lengths
        for size in batches
    }


def section(results: dict[str, Any]) -> str:
    """Return the floors, and all lengths and batch sizes."""
    if failed := [result["failed"] for result in results.values() if "failed" in result]:
        return f"Not measured: {failed[0]}."
    lines, floors = [], []
    for result in results.values():
        share = 1.0 - result["model_seconds"] / result["seconds"]
        lines.append(
            [
                str(result["length"]),
                str(result["batch_size"]),
                f"{result['calls']:,}",
                number(result["seconds"]),
                number(1e3 * result["model_seconds"] / result["calls"]),
                number(1e3 * (result["seconds"] - result["model_seconds"]) / result["calls"]),
                f"{100 * share:.1f} %",
            ]
        )
        if result["length"] == LENGTH and result["batch_size"] in FLOOR_BATCHES:
            what = f"time outside the model, {LENGTH} tokens, batches of {result['batch_size']}"
            met = "yes" if share <= FLOOR else "**no**"
            floors.append([what, f"{100 * FLOOR:.0f} %", f"{100 * share:.1f} %", met])
    head = ["tokens", "batch size", "calls", "seconds", "model, ms a call", "other, ms a call"]
    return "\n\n".join(
        [
            f"One explanation of a transformer of {LAYERS} layers, {WIDTH} wide, four heads, float32, random "
            'weights; `method="permutation"`. Processor time on one core; a call is one distinct sequence. '
            "A wider model leaves a smaller share to the rest.",
            *([table(["floor", "at most", "measured", "met"], floors)] if floors else []),
            table([*head, "outside the model"], lines, left=0),
        ]
    )


SUITE = Suite("ordshap-overhead", "OrdShap: time outside the model", cases, section)
