"""MCIR-M: how much of what a feature says about the output no dependent feature says too.

For the output Q and the neighbourhood Φ(i) of feature i, in nats:

    U_i = I(Q; X_i | X_Φ(i))    J_i = I(Q; X_i, X_Φ(i))    C_i = 2 U⁺ / (U⁺ + J⁺), clipped to [0, 1]

Differs from the paper: one ridge on the whole covariance instead of one after the Schur complement, the
maximum norm for nearest neighbours, no ψ(n) in their conditional form, and a feature without a
neighbourhood is not ranked: its C would be 1 even if it were noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2

from attributary.workers.explainers.auto_neighbourhood import (
    SizeCriterion,
    best,
    criteria,
    leftover_dependence,
    mean_agreement,
)
from attributary.workers.explainers.estimators import (
    Columns,
    Estimator,
    Information,
    Kind,
    compatible,
)
from attributary.workers.explainers.gaussian_copula import (
    DEFAULT_RIDGE,
    CopulaInformation,
    copula_information,
)
from attributary.workers.explainers.linear_algebra import Floats, Integers, Linalg
from attributary.workers.explainers.linked_blocks import linked_blocks
from attributary.workers.explainers.mcir_inputs import checked, distinct_sizes, padded
from attributary.workers.explainers.neighbourhood_screens import (
    THRESHOLDS,
    Screen,
    affinity,
    screened,
)
from attributary.workers.explainers.normal_scores import NormalScores
from attributary.workers.explainers.resampled_information import resampled_information
from attributary.workers.explainers.resampling import bootstrap_counts, half

NO_NEIGHBOURHOOD = "no neighbourhood"
SMALL_DENOMINATOR = "small denominator"


@dataclass(frozen=True)
class Stability:
    """How much resamples agree on the ranked features: means over all pairs, None if undefined."""

    kendall: float | None
    jaccard: float | None
    head: int


@dataclass(frozen=True)
class McirResult:
    """Arrays are (d,) unless they say otherwise; information in nats, ``score`` in [0, 1].

    ``interval`` (d, 2) is a 95 % interval of the score and ``stderr`` its standard error, NaN without
    resamples. ``ranked`` is False where there is no neighbourhood: judge these by ``marginal``.
    """

    score: Floats
    unique: Floats
    joint: Floats
    marginal: Floats
    neighbourhoods: list[list[int]]
    estimator: list[str]
    interval: Floats
    stderr: Floats
    ranked: npt.NDArray[np.bool_]
    flags: list[tuple[str, ...]]
    size: int | None
    criteria: list[SizeCriterion]
    stability: Stability | None
    #: Score and standard error (d,) of each estimator that ``"switch"`` chose from.
    fixed: dict[str, tuple[Floats, Floats]]

    def ranking(self) -> list[int]:
        """Return the ranked features, the highest score first, of equals the more unique one."""
        order = np.lexsort((-self.unique, -self.score))
        return [int(i) for i in order if self.ranked[i]]


def coefficient(unique: npt.ArrayLike, joint: npt.ArrayLike) -> Floats:
    """Return C = 2U⁺/(U⁺ + J⁺) clipped to [0, 1], and 0 where both vanish."""
    u, j = np.maximum(unique, 0.0), np.maximum(joint, 0.0)
    ratio = np.divide(2 * u, u + j, out=np.zeros(np.shape(u + j)), where=u + j > 0)
    clipped: Floats = np.clip(ratio, 0.0, 1.0)
    return clipped


def mcir(
    X: npt.ArrayLike,
    Q: npt.ArrayLike,
    *,
    kinds: Sequence[Kind] | None = None,
    neighbourhoods: Sequence[Sequence[int]] | None = None,
    sizes: Sequence[int] = (1, 3, 5),
    max_candidates: int = 6,
    screen: Screen = "pearson",
    threshold: float | None = None,
    estimator: Estimator = "copula",
    ridge: float = DEFAULT_RIDGE,
    bootstraps: int = 50,
    block_length: int = 1,
    head: int = 8,
    rng: np.random.Generator | int | None = 0,
    linalg: Linalg | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> McirResult:
    """Score the features X (n, d) by their unique information on Q (n,) or (n, q).

    kinds: "continuous" or "discrete", one per feature and one last for Q; continuous by default.
    neighbourhoods: columns per feature; without it they are screened (``screen``, ``threshold``,
        ``max_candidates``; threshold None: the screen's own) and Auto-Φ chooses one of ``sizes``, both
        under the copula.
    estimator: "copula", "knn", "plugin" (discrete), "mixed", or "switch": per feature the compatible
        one with the smallest standard error.
    bootstraps: resamples for Auto-Φ, intervals and stability; 0 for none of them.
    block_length: rows of a resampled block, for rows that depend on their predecessors.
    head: leading features whose agreement between resamples is reported as stability.
    progress: told between steps how many of how many are done; what it raises ends the work.
    Raises ValueError for shapes, NaN, unknown names, and an estimator that does not fit the kinds.
    """
    features, outputs, kinds = checked(X, Q, kinds, estimator, bootstraps, head)
    n, d = features.shape
    generator = np.random.default_rng(rng)
    columns = Columns(features, outputs, kinds)
    ends = columns.outputs
    copula = NormalScores(columns.values)
    counts = np.array([bootstrap_counts(n, generator, block_length) for _ in range(bootstraps)])
    counts = counts.reshape(bootstraps, n)

    if neighbourhoods is None:
        correlation = copula.correlation(linalg)
        measure = affinity(screen, features, outputs, correlation[:d, :d])
        least = THRESHOLDS[screen] if threshold is None else threshold
        candidates = screened(measure, least, max_candidates)
        tried = distinct_sizes(sizes, max_candidates)
    else:
        candidates = padded(neighbourhoods, d)
        tried = [candidates.shape[1]]
    # All that is left to look at: a feature, those that may stand in for it, and the output.
    blocks = linked_blocks([row[row >= 0].tolist() for row in candidates], ends)
    if neighbourhoods is not None:
        correlation = copula.correlation(linalg, blocks)
    everyone = np.arange(d)
    ranked: npt.NDArray[np.bool_] = np.any(candidates >= 0, axis=1)

    # Auto-Φ and the copula's own intervals rest on resampled copulas; nothing else does.
    redrawn = bootstraps if neighbourhoods is None or estimator == "copula" else 0
    steps = redrawn + (0 if estimator == "copula" else d)

    def resampled(
        taken: Integers, near: Integers, kept: Sequence[int], told: Callable[[float], None]
    ) -> CopulaInformation:
        return resampled_information(
            copula, taken, ends, near, blocks, kept, ridge=ridge, linalg=linalg, told=told
        )

    redraws = resampled(
        counts[:redrawn],
        candidates,
        [min(one, candidates.shape[1]) for one in tried],
        lambda share: progress(int(share * redrawn), steps),
    )
    drawn = np.moveaxis(coefficient(redraws.unique, redraws.joint), 2, 0)

    selected: SizeCriterion | None = None
    found_criteria: list[SizeCriterion] = []
    if neighbourhoods is None:
        leftover = leftover_dependence(correlation, candidates, ridge=ridge, linalg=linalg)
        found_criteria = criteria(tried, drawn[:, :, ranked], leftover, most=max_candidates)
        selected = best(found_criteria)
        drawn = drawn[tried.index(selected.size)][None]
        candidates = candidates[:, : selected.size]
    chosen = [[int(j) for j in row if j >= 0] for row in candidates]

    if estimator == "copula":
        whole = copula_information(
            correlation, everyone, ends, candidates, ridge=ridge, linalg=linalg
        )
        unique, joint, marginal = whole.unique[:, -1], whole.joint[:, -1], whole.unique[:, 0]
        score, used = coefficient(unique, joint), ["copula"] * d
        interval, stderr = _percentiles(drawn[0])
        doubts: list[tuple[str, ...]] = [()] * d
        fixed: dict[str, tuple[Floats, Floats]] = {}
        steady = drawn[0][:, ranked]
        agreement = mean_agreement(steady) if selected is None else selected.agreement
        stability = _stability(steady, agreement, head)
    else:
        halves = [half(n, generator, block_length) for _ in range(bootstraps)]
        of_copula: tuple[CopulaInformation, CopulaInformation] | None = None
        fits = ("copula" in compatible(columns.kinds_of(*one)) for one in enumerate(chosen))
        if estimator == "switch" and any(fits):
            taken = np.zeros((bootstraps, n), dtype=np.int64)
            for b, rows in enumerate(halves):
                taken[b, rows] = 1
            of_copula = (
                copula_information(
                    correlation, everyone, ends, candidates, ridge=ridge, linalg=linalg
                ),
                resampled(
                    taken,
                    candidates,
                    [0, candidates.shape[1]],
                    lambda share: progress(redrawn, steps),
                ),
            )
        table = _by_feature(
            columns, chosen, estimator, halves, of_copula, lambda i: progress(redrawn + i, steps)
        )
        unique, joint, marginal, score, stderr = table.figures
        interval = np.clip(score[:, None] + 1.96 * stderr[:, None] * np.array([-1, 1]), 0, 1)
        used, doubts, fixed = table.used, table.flags, table.fixed
        stderr = np.where(np.isfinite(stderr), stderr, np.nan)
        steady = table.drawn[:, ranked]
        stability = _stability(steady, mean_agreement(steady), head)
    return McirResult(
        score=score,
        unique=unique,
        joint=joint,
        marginal=marginal,
        neighbourhoods=chosen,
        estimator=used,
        interval=interval,
        stderr=stderr,
        ranked=ranked,
        flags=_flags(ranked, unique + joint, chosen, n, outputs.shape[1], doubts),
        size=None if selected is None else selected.size,
        criteria=found_criteria,
        stability=stability,
        fixed=fixed,
    )


@dataclass
class _Table:
    figures: tuple[Floats, Floats, Floats, Floats, Floats]
    used: list[str]
    flags: list[tuple[str, ...]]
    fixed: dict[str, tuple[Floats, Floats]]
    drawn: Floats


def _by_feature(
    columns: Columns,
    chosen: list[list[int]],
    estimator: Estimator,
    halves: list[Integers],
    of_copula: tuple[CopulaInformation, CopulaInformation] | None,
    begin: Callable[[int], None],
) -> _Table:
    """Estimate each feature by its estimator; with "switch" by all that fit, and keep the steadiest.

    ``of_copula``: the copula's figures of the whole sample and of the halves, for all features.
    """
    d = len(chosen)
    unique, joint, marginal, score = (np.zeros(d) for _ in range(4))
    stderr = np.full(d, np.nan)
    drawn = np.zeros((len(halves), d))
    used: list[str] = []
    flags: list[tuple[str, ...]] = []
    fixed: dict[str, tuple[Floats, Floats]] = {}
    for i, near in enumerate(chosen):
        begin(i)
        fitting = compatible(columns.kinds_of(i, near))
        best: Estimator | None = None
        for name in fitting if estimator == "switch" else (estimator,):
            if name == "copula":
                assert of_copula is not None  # noqa: S101
                found, *parts = _of_feature(i, *of_copula)
            else:
                found = columns.information(i, near, name)
                parts = [columns.information(i, near, name, rows) for rows in halves]
            draws = coefficient([p.unique for p in parts], [p.joint for p in parts])
            value = float(coefficient([found.unique], [found.joint])[0])
            error = _standard_error(found, parts)
            if estimator == "switch":
                scores, errors = fixed.setdefault(name, (np.full(d, np.nan), np.full(d, np.nan)))
                scores[i], errors[i] = value, error
            if best is None or error < stderr[i]:
                best = name
                unique[i], joint[i], marginal[i] = found.unique, found.joint, found.marginal
                score[i], stderr[i], drawn[:, i] = value, error, draws
                doubt = found.flags
        assert best is not None  # noqa: S101
        used.append(best)
        flags.append(doubt)
    return _Table((unique, joint, marginal, score, stderr), used, flags, fixed, drawn)


def _of_feature(
    feature: int, whole: CopulaInformation, halves: CopulaInformation
) -> Iterator[Information]:
    """Yield a feature's figures by the copula: of the whole sample, then of each half."""
    for found in (whole.unique[None], whole.joint[None]), (halves.unique, halves.joint):
        unique, joint = (figure[:, feature] for figure in found)
        for u, j in zip(unique, joint, strict=True):
            yield Information(float(u[-1]), float(j[-1]), float(u[0]))


def _standard_error(whole: Information, halves: list[Information]) -> float:
    """Return the spread of C over halves, by its linear part at the whole sample; inf where C is 0/0.

    Of the linear part, because C itself is cut to [0, 1]: a score that lies at a bound in every half has
    no spread there, however badly it is known, and an estimator that finds nothing would seem the steadiest.
    """
    if len(halves) < 2:
        return np.nan
    u, j = max(whole.unique, 0.0), max(whole.joint, 0.0)
    if u + j == 0:
        return np.inf
    slope = np.array([j, -u]) * 2 / (u + j) ** 2
    return float((np.array([[half.unique, half.joint] for half in halves]) @ slope).std(ddof=1))


def _percentiles(drawn: Floats) -> tuple[Floats, Floats]:
    if drawn.shape[0] < 2:
        return np.full((drawn.shape[1], 2), np.nan), np.full(drawn.shape[1], np.nan)
    return np.quantile(drawn, [0.025, 0.975], axis=0).T, drawn.std(axis=0, ddof=1)


def _stability(drawn: Floats, kendall: float | None, head: int) -> Stability | None:
    resamples, d = drawn.shape
    if resamples < 2 or not d:
        return None
    jaccard = None
    if d > head:
        above = np.triu_indices(resamples, 1)
        member = np.zeros((resamples, d))
        np.put_along_axis(member, np.argsort(-drawn, axis=1, kind="stable")[:, :head], 1.0, axis=1)
        shared = (member @ member.T)[above]
        jaccard = float(np.mean(shared / (2 * head - shared)))
    return Stability(kendall, jaccard, head)


def _flags(
    ranked: npt.NDArray[np.bool_],
    denominator: Floats,
    chosen: list[list[int]],
    n: int,
    q: int,
    doubts: list[tuple[str, ...]],
) -> list[tuple[str, ...]]:
    """Name what makes a score doubtful. A denominator is small when no more than chance would give:
    under independence 2n I is about chi-square with one degree of freedom a pair of coordinates."""
    flags = []
    # By the number of neighbours: SciPy takes long to be asked for each feature.
    reach = 1 + max((len(near) for near in chosen), default=0)
    quantiles = np.asarray(chi2.ppf(0.95, q * np.arange(1, reach + 1)), dtype=np.float64)
    chances = (quantiles[0] + quantiles) / (2 * n)
    for i, near in enumerate(chosen):
        found = [*doubts[i]]
        if not ranked[i]:
            found.append(NO_NEIGHBOURHOOD)
        if denominator[i] < chances[len(near)]:
            found.append(SMALL_DENOMINATOR)
        flags.append(tuple(found))
    return flags
