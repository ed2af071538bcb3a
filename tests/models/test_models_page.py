"""The examples of docs/models.md, run as they are written, and what they save, opened."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from models import load_here

from attributary.workers.ondemand.policy import LoadPolicy

PAGE = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


@pytest.mark.timeout(120)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_examples_save_models_that_open(tmp_path, monkeypatch):
    for library in ("xgboost", "skops", "torch", "onnx", "safetensors"):
        pytest.importorskip(library, reason="needs the extra 'ondemand'")
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(200, 4))
    shared = {"X": X, "y": (X[:, 0] > X[:, 1]).astype(int), "__name__": "page"}
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(example, "docs/models.md", "exec"), shared)  # noqa: S102
    torch = shared["torch"]

    def logits(name: str) -> np.ndarray:
        with torch.no_grad():
            answer: np.ndarray = shared[name](torch.tensor(X, dtype=torch.float32)).numpy()
        return answer

    for file, expected in [
        ("churn.ubj", shared["booster"].predict(X, output_margin=True)),
        ("churn.skops", shared["pipeline"].decision_function(X)),
        ("churn.onnx", logits("network")[:, 0]),
        ("churn.safetensors", logits("perceptron")[:, 0]),
    ]:
        answer = load_here(tmp_path / file).predict(X).reshape(-1)
        np.testing.assert_allclose(answer, expected, rtol=1e-5, atol=1e-6)
    built = shared["ARCHITECTURE"].build(shared["Parameters"](features=4))
    assert built(torch.zeros(2, 4)).shape == (2, 1)


def test_every_setting_is_on_the_page():
    for name in LoadPolicy.model_fields:
        assert re.search(rf"^\| .*`{name}`.* \|", PAGE, re.MULTILINE), name
