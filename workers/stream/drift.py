"""Drift of a model's final windows: against the card's baseline, or else the first full window, and against
the preceding one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from attributary.schemas.attribution import AttributionDrift, ColumnDrift, Window, WindowDrift
from attributary.workers.maths import agreement
from attributary.workers.maths.drift import digest_drift
from attributary.workers.maths.drift_masses import missing_change, stability
from attributary.workers.maths.score_change import largest_change
from attributary.workers.maths.tdigest import TDigests
from attributary.workers.maths.window import WindowScores
from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.due import Due
from attributary.workers.stream.layout import Floats, Layout
from attributary.workers.stream.lightweight import Tally
from attributary.workers.stream.snapshot_state import DriftState, RememberedState

ReferenceKind = Literal["baseline", "preceding"]


@dataclass(frozen=True)
class Sample:
    """Rows that others are compared with; ``score`` (c, d) and its ``stderr``, NaN where it is unknown."""

    tally: Tally
    x_digests: TDigests
    y_digests: TDigests
    score: Floats
    stderr: Floats

    @property
    def rows(self) -> int:
        """Rows that it counts."""
        return self.tally.total


@dataclass(frozen=True)
class Remembered(Sample):
    """What is kept of a window to compare later ones with."""

    window: Window

    @classmethod
    def of(cls, due: Due, scores: WindowScores) -> Remembered:
        """Return what is kept of a window that is due; its state is not changed afterwards."""
        digests = due.state.x_digests, due.state.y_digests
        return cls(due.tally, *digests, scores.scores.score, scores.scores.stderr, due.window)

    def state(self) -> RememberedState:
        """Return it as a snapshot holds it."""
        return RememberedState(
            self.window.model_dump_json().encode(),
            self.tally.listed(),
            self.x_digests.to_bytes(),
            self.y_digests.to_bytes(),
            np.ascontiguousarray(self.score, dtype="<f8").tobytes(),
            np.ascontiguousarray(self.stderr, dtype="<f8").tobytes(),
        )

    @classmethod
    def from_state(cls, state: RememberedState, layout: Layout) -> Remembered:
        """Return what ``state`` gave; ValueError where it is of other columns."""
        x_digests = TDigests.from_bytes(state.x_digests)
        y_digests = TDigests.from_bytes(state.y_digests)
        shape = len(layout.outputs), len(layout.columns)
        if (y_digests.columns, x_digests.columns) != shape:
            raise IncompatibleStateError(
                f"a reference window of {(y_digests.columns, x_digests.columns)} outputs and columns "
                f"for a layout of {shape}"
            )
        score = np.frombuffer(state.score, dtype="<f8").astype(np.float64).reshape(shape)
        stderr: Floats = np.full(shape, np.nan)
        if state.stderr:
            stderr = np.frombuffer(state.stderr, dtype="<f8").astype(np.float64).reshape(shape)
        window = Window.model_validate_json(state.window)
        return cls(Tally.of(state.rows), x_digests, y_digests, score, stderr, window)


class DriftBook:
    """The reference windows of one model, by kind of window: a first full one, and the latest."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._baselines: dict[int, Remembered] = {}
        self._latest: dict[int, dict[int, Remembered]] = {}
        #: Windows compared so far: whether anything has changed.
        self.changes = 0

    def state(self) -> DriftState:
        """Return the references as a snapshot holds them."""
        return DriftState(
            {spec: kept.state() for spec, kept in self._baselines.items()},
            {
                spec: [kept.state() for kept in latest.values()]
                for spec, latest in self._latest.items()
            },
        )

    def copy(self) -> DriftBook:
        """Return an independent copy; what it remembers is never changed."""
        other = DriftBook(self._layout)
        other._baselines = dict(self._baselines)
        other._latest = {spec: dict(latest) for spec, latest in self._latest.items()}
        return other

    def restore(self, state: DriftState) -> None:
        """Begin with these references; ValueError where they are of another layout."""
        for spec, kept in state.baselines.items():
            self._baselines[spec] = Remembered.from_state(kept, self._layout)
        for spec, several in state.latest.items():
            found = [Remembered.from_state(kept, self._layout) for kept in several]
            self._latest[spec] = {kept.window.start: kept for kept in found}

    def compare(
        self,
        model: str,
        due: Due,
        scores: WindowScores,
        oldest: int,
        now: int,
        training: Sample | None = None,
    ) -> Iterator[WindowDrift]:
        """Yield the window's drift against each reference there is, per output; then remember it.

        ``oldest`` is the start of the model's first pane: a window that begins before is not full.
        ``training``: what the card's baseline says; without it the first full window is the baseline.
        """
        self.changes += 1
        current = Remembered.of(due, scores)
        edges = None if scores.profile is None else scores.profile.x_edges
        common = current, edges, model, due.revision, now
        latest = self._latest.setdefault(due.spec, {})
        baseline = self._baselines.get(due.spec)
        if training is not None:
            yield from self._messages("baseline", training, None, *common)
        elif baseline is not None and baseline.window.start < due.window.start:
            yield from self._messages("baseline", baseline, baseline.window, *common)
        before = [start for start in latest if latest[start].window.end <= due.window.start]
        if before:
            known = latest[max(before)]
            yield from self._messages("preceding", known, known.window, *common)
        if due.window.start >= oldest and (
            baseline is None or baseline.window.start >= due.window.start
        ):
            self._baselines[due.spec] = current
        latest[due.window.start] = current
        # Older than the newest that ended by this window's start: nothing later looks at them.
        for start in [start for start in before if start < max(before)]:
            del latest[start]

    def _messages(
        self,
        kind: ReferenceKind,
        reference: Sample,
        reference_window: Window | None,
        current: Remembered,
        edges: Floats | None,
        model: str,
        revision: int,
        now: int,
    ) -> Iterator[WindowDrift]:
        names = [column.name for column in self._layout.columns]
        shares = reference.tally.effective_share, current.tally.effective_share
        features = _columns(names, reference.x_digests, current.x_digests, edges, shares)
        outputs = _columns(
            self._layout.outputs,
            reference.y_digests,
            current.y_digests,
            _deciles(reference.y_digests),
            shares,
        )
        for index, output in enumerate(self._layout.outputs):
            yield WindowDrift(
                model=model,
                output=output,
                window=current.window,
                revision=revision,
                reference=kind,
                reference_window=reference_window,
                computed_at=now,
                rows=current.rows,
                reference_rows=reference.rows,
                rows_thinned=current.tally.rows_thinned,
                fractions=current.tally.fractions,
                reference_rows_thinned=reference.tally.rows_thinned,
                reference_fractions=reference.tally.fractions,
                features=features,
                output_drift=outputs[index],
                attributions=_agreement(reference, current, index, names),
            )


def _deciles(digests: TDigests) -> Floats:
    """Return the deciles of each column, (columns, 9): the bins that outputs are compared in."""
    deciles: Floats = np.nan_to_num(digests.quantile(np.arange(1, 10) / 10).T, nan=0.0)
    return deciles


def _columns(
    names: list[str] | tuple[str, ...],
    reference: TDigests,
    current: TDigests,
    edges: Floats | None,
    shares: tuple[float, float],
) -> list[ColumnDrift]:
    """Return the drift of every column; ``shares`` of each side's rows are its effective rows."""
    before, now = shares
    effective = reference.count * before, current.count * now
    far = digest_drift(reference, current, effective_rows=effective)
    unknown: list[float | None] = [None] * len(names)
    psi, critical = unknown, unknown
    if edges is not None:
        masses = _masses(reference, edges), _masses(current, edges)
        found = stability(*masses, effective_rows=effective)
        psi, critical = found.psi.tolist(), found.critical.tolist()
    lost = reference.nan_count + reference.inf_count, current.nan_count + current.inf_count
    missing = missing_change(
        lost[0] * before,
        (reference.count + lost[0]) * before,
        lost[1] * now,
        (current.count + lost[1]) * now,
    )
    fields = (
        psi,
        critical,
        far.ks.tolist(),
        far.ks_critical.tolist(),
        far.wasserstein.tolist(),
        far.wasserstein_error.tolist(),
        missing.change.tolist(),
        missing.low.tolist(),
        missing.high.tolist(),
    )
    return [
        ColumnDrift(
            name=name,
            psi=row[0],
            psi_critical=row[1],
            ks=row[2],
            ks_critical=row[3],
            wasserstein=row[4],
            wasserstein_error=row[5],
            missing_change=row[6],
            missing_change_interval=None if row[7] is None else (row[7], row[8]),
        )
        for name, row in zip(names, zip(*fields, strict=True), strict=True)
    ]


def _masses(digests: TDigests, edges: Floats) -> Floats:
    """Return the rows of each column between its edges, (columns, edges + 1)."""
    below = digests.cdf(edges.T).T
    columns = len(edges)
    shares = np.diff(below, axis=1, prepend=np.zeros((columns, 1)), append=np.ones((columns, 1)))
    masses: Floats = np.maximum(np.nan_to_num(shares, nan=0.0), 0.0) * digests.count[:, None]
    return masses


def _agreement(
    reference: Sample, current: Sample, output: int, names: list[str]
) -> AttributionDrift:
    before, now = reference.score[output], current.score[output]
    # In units of 2·CIR - 1, whose error is twice that of CIR.
    change = largest_change(
        2 * before, 2 * reference.stderr[output], 2 * now, 2 * current.stderr[output]
    )
    strong_before = np.abs(2 * before - 1)
    strong_now = np.abs(2 * now - 1)
    return AttributionDrift(
        kendall=agreement.kendall_tau(before, now),
        spearman=agreement.spearman_rho(before, now),
        jaccard_at_8=agreement.jaccard_at_k(strong_before, strong_now),
        ndcg_at_8=agreement.ndcg_at_k(strong_before, strong_now),
        procrustes=agreement.procrustes_residual(2 * before - 1, 2 * now - 1),
        symmetric_kl=agreement.symmetric_kl(before, now),
        change_low=None if change is None else change.low,
        changed=names[change.column] if change is not None and change.low > 0 else None,
    )
