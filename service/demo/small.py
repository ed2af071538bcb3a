"""scikit-learn's own small data sets as streams: a model, its held-out rows resampled, and one drift.

The model learns from half of the rows. The stream draws from the other half with replacement, adds
a little noise to their numbers, and asks the model again for every row, so that the outputs follow the
noise and the drift as they would in production. Outputs are margins (regression values, decision functions),
not probabilities: the co-movement ratio is invariant under positive affine maps, not under a sigmoid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import numpy as np

from attributary.schemas.card import Feature, Lifetime, ModelCard, Tumbling
from attributary.service.demo.columns import with_baseline
from attributary.service.demo.dataset import Column, Dataset, Numbers, Rows
from attributary.service.demo.packages import needed

SMALL = ("breast_cancer", "diabetes", "digits")
DEFAULT_ROWS = 50_000
NOISE = 0.05  # of a number's standard deviation
START = int(datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp() * 1000)
DAY_MS = 86_400_000
IMAGE = 8  # the digits are 8 x 8 pixels of 0 to 16
SENSOR_NOISE, DIMMED = 2.0, 0.8


@dataclass(frozen=True)
class _Source:
    """A data set in two halves, and its model: ``predict`` maps (n, d) to margins (n, c)."""

    name: str
    training: Numbers
    X: Numbers
    predict: Callable[[Numbers], Numbers]
    features: list[Feature]
    outputs: list[str]
    unit: str
    told: str
    noisy: Callable[[Numbers, np.random.Generator], Numbers]
    drifted: Callable[[Numbers], Numbers]
    drift: str


def small(name: str, *, rows: int = DEFAULT_ROWS, seed: int = 0) -> Dataset:
    """Return ``rows`` rows of ``breast_cancer``, ``diabetes`` or ``digits``, spread over one day.

    The first half is as the model knows it, the second half drifts: ``Dataset.drift`` says how.
    The same ``rows`` and ``seed`` give the same stream. ConfigurationError where scikit-learn is missing.
    """
    source = _SOURCES[name](seed)
    rng = np.random.default_rng(seed)
    X = source.noisy(source.X[rng.integers(0, len(source.X), size=rows)], rng)
    middle = rows // 2
    X[middle:] = source.drifted(X[middle:])
    # A day in a minute: partitions read a few seconds apart are hours apart in event time.
    card = ModelCard(
        model=name.replace("_", "-"),
        features=source.features,
        outputs=source.outputs,
        strict=True,
        pane_seconds=1800.0,
        allowed_lateness_seconds=6 * 3600.0,
        windows=[Tumbling(seconds=14_400.0), Lifetime()],
    )
    return Dataset(
        card=with_baseline(card, _rows(source, source.training)),
        rows=_rows(source, X),
        unit=source.unit,
        description=(
            f"{rows:,} rows drawn from the {len(source.X)} held-out rows of {name}, as one day "
            f"of traffic; {source.told}"
        ),
        drift=f"injected at noon, half-way: {source.drift}",
    )


def _rows(source: _Source, X: Numbers) -> Rows:
    """Return X as rows of the model, spread evenly over one day."""
    features: dict[str, Column] = {
        feature.name: X[:, j]
        if feature.kind == "numeric"
        else X[:, j].astype(int).astype(str).astype(object)
        for j, feature in enumerate(source.features)
    }
    times = START + (np.arange(len(X), dtype=np.int64) * DAY_MS) // max(len(X), 1)
    ids = np.array([f"{source.name}-{row}" for row in range(len(X))], dtype=object)
    return Rows(features, source.predict(X), times, ids)


def _halves(X: Numbers, y: Any, seed: int) -> tuple[Numbers, Any, Numbers]:
    """Return the training half of X and y, and the other half of X."""
    order = np.random.default_rng(seed).permutation(len(X))
    learn, rest = order[: len(X) // 2], order[len(X) // 2 :]
    return X[learn], y[learn], X[rest]


def _breast_cancer(seed: int) -> _Source:
    data = needed("sklearn.datasets").load_breast_cancer()
    X, y, rest = _halves(data.data, data.target == 0, seed)
    model = _standardised(needed("sklearn.linear_model").LogisticRegression(max_iter=500)).fit(X, y)
    names = [str(name) for name in data.feature_names]
    column, step = names.index("worst texture"), 1.5 * X.std(axis=0)
    return _Source(
        name="breast_cancer",
        training=X,
        X=rest,
        predict=lambda rows: np.asarray(model.decision_function(rows), dtype=np.float64)[:, None],
        features=[Feature(name=name, group=_measure(name)) for name in names],
        outputs=["malignant_margin"],
        unit="log-odds",
        told="logistic regression's margin (log-odds of malignant), trained on the other half",
        noisy=lambda rows, rng: _jittered(rows, names, X.std(axis=0), rng),
        drifted=lambda rows: _shifted(rows, column, step[column]),
        drift=f"'{names[column]}' rises by {step[column]:.3g}, 1.5 of its standard deviations",
    )


def _measure(name: str) -> str:
    """Return the block of a breast-cancer column: the mean, the error or the worst of ten measures."""
    return next(block for block in ("mean", "error", "worst") if block in name.split())


def _diabetes(seed: int) -> _Source:
    data = needed("sklearn.datasets").load_diabetes(scaled=False)
    X, y, rest = _halves(data.data, data.target, seed)
    forest = needed("sklearn.ensemble").HistGradientBoostingRegressor(
        max_iter=60, max_leaf_nodes=8, min_samples_leaf=10, random_state=seed
    )
    model = forest.fit(X, y)
    names = [str(name) for name in data.feature_names]
    column, step = names.index("bmi"), 1.5 * X.std(axis=0)
    features = [
        Feature(name=name, kind="categorical", levels=["1", "2"], group="sex")
        if name == "sex"
        else Feature(name=name, group="serum" if name[0] == "s" else "body")
        for name in names
    ]
    return _Source(
        name="diabetes",
        training=X,
        X=rest,
        predict=lambda rows: np.asarray(model.predict(rows), dtype=np.float64)[:, None],
        features=features,
        outputs=["progression"],
        unit="points",
        told="gradient-boosted trees predict the disease's progression after a year",
        noisy=lambda rows, rng: _jittered(rows, names, X.std(axis=0), rng),
        drifted=lambda rows: _shifted(rows, column, step[column]),
        drift=f"'bmi' rises by {step[column]:.3g}, 1.5 of its standard deviations",
    )


def _digits(seed: int) -> _Source:
    data = needed("sklearn.datasets").load_digits()
    X, y, rest = _halves(data.data, data.target, seed)
    X = _sensed(X, np.random.default_rng(seed))
    model = needed("sklearn.linear_model").LogisticRegression(max_iter=200, C=0.1).fit(X / 16, y)
    return _Source(
        name="digits",
        training=X,
        X=rest,
        predict=lambda rows: np.asarray(model.decision_function(rows / 16), dtype=np.float64),
        features=[
            Feature(name=f"r{row}c{column}", group=f"row {row}")
            for row in range(IMAGE)
            for column in range(IMAGE)
        ],
        outputs=[f"digit_{label}" for label in range(10)],
        unit="logits",
        told="multinomial logistic regression's ten logits, one output per digit",
        noisy=_sensed,
        drifted=_dimmed,
        drift=f"every image is {1 - DIMMED:.0%} darker, as if the scanner's lamp were ageing",
    )


def _standardised(model: Any) -> Any:
    """Return ``model`` behind a standardisation."""
    scaler = needed("sklearn.preprocessing").StandardScaler()
    return needed("sklearn.pipeline").make_pipeline(scaler, model)


def _jittered(X: Numbers, names: list[str], spread: Numbers, rng: np.random.Generator) -> Numbers:
    """Return X with Gaussian noise of NOISE times ``spread`` on every number; sex is a category."""
    noise = NOISE * spread * np.array([name != "sex" for name in names])
    noisy: Numbers = X + noise * rng.normal(size=X.shape)
    return noisy


def _sensed(X: Numbers, rng: np.random.Generator) -> Numbers:
    """Return images as a noisy sensor gives them. Pixels that are always 0 would be constant columns
    in the training half, and a grid cannot be taken from those."""
    noisy: Numbers = X + SENSOR_NOISE * rng.normal(size=X.shape)
    return noisy


def _shifted(X: Numbers, column: int, step: float) -> Numbers:
    moved: Numbers = X.copy()
    moved[:, column] += step
    return moved


def _dimmed(X: Numbers) -> Numbers:
    return X * DIMMED


_SOURCES: dict[str, Callable[[int], _Source]] = {
    "breast_cancer": _breast_cancer,
    "diabetes": _diabetes,
    "digits": _digits,
}
