"""A training table and a model to a card with its baseline, in passes that keep no row.

1. Levels of the categoricals that nothing declares. 2. A uniform sample of the rows, in memory alone: the
grid's edges are its quantiles, groups come from its correlations. 3. Every row into one sketch, as the stream
counts rows: digests, co-movement, scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from attributary.schemas.arrow import ArrowRows
from attributary.schemas.arrow_columns import category, texts
from attributary.schemas.card import Artefact, Feature, ModelCard
from attributary.schemas.errors import ConfigurationError, RejectedError
from attributary.service.columns import Choice
from attributary.service.table_files import Reject
from attributary.service.training_table import Rows, TrainingTable, declared
from attributary.workers.maths.grid import Grid
from attributary.workers.maths.groups import correlation, propose_groups
from attributary.workers.maths.pane import PaneSketch
from attributary.workers.maths.sample import RowSample, hash_integers
from attributary.workers.maths.window import WindowScores, WindowState
from attributary.workers.ondemand.inputs import Inputs
from attributary.workers.ondemand.models import OpenModel, open_model
from attributary.workers.ondemand.policy import LoadPolicy
from attributary.workers.stream.epoch import cells_for
from attributary.workers.stream.layout import DEFAULT_OUTPUT, Layout
from attributary.workers.stream.options import IngestOptions
from attributary.workers.stream.training import baseline_of

Floats = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], None]

SAMPLE_ROWS = 16_384
_SAMPLE_VALUES = 8 * 2**20
_MOST_TEXTS = 10_000
_LONGEST_GROUP = 80


@dataclass(frozen=True)
class BaselineJob:
    """What the baseline is taken from: a file, or what ``query`` returns where ``path`` is None.

    ``artefact``: the model that says the outputs; None: columns hold them. ``card`` declares what it likes.
    ``group_threshold``: correlation from which features form a group; None: no groups but the card's.
    """

    path: Path | None
    model: str
    choice: Choice
    kind: str = "auto"
    query: str = ""
    database: Path | None = None
    card: ModelCard | None = None
    artefact: Artefact | None = None
    group_threshold: float | None = 0.7


@dataclass(frozen=True)
class MadeBaseline:
    """The card, what was learnt for it (groups and levels by name), and what the rows say."""

    card: ModelCard
    groups: dict[str, list[str]]
    learnt_levels: dict[str, list[str]]
    left_out: tuple[str, ...]
    layout: Layout
    state: WindowState
    scores: WindowScores


def make_baseline(
    job: BaselineJob,
    options: IngestOptions,
    policy: LoadPolicy,
    *,
    reject: Reject,
    progress: Progress = lambda *_: None,
) -> MadeBaseline:
    """Return the card of the job; ``reject`` is told, once, of every row that is left out.

    ConfigurationError: the table, its columns or the card cannot be used. RequestError: the model cannot.
    """
    return _Making(job, options, policy, reject, progress).run()


class _Making:
    def __init__(
        self,
        job: BaselineJob,
        options: IngestOptions,
        policy: LoadPolicy,
        reject: Reject,
        progress: Progress,
    ) -> None:
        self._job = job
        self._options = options
        self._policy = policy
        self._reject = reject
        self._progress = progress
        card = job.card or ModelCard(model=job.model)
        if card.features and job.choice.features:
            raise ConfigurationError("the card names the features: leave --features out")
        self._table = TrainingTable(
            job.path,
            job.model,
            declared(
                job.choice,
                tuple(feature.name for feature in card.features),
                tuple(feature.name for feature in card.features if feature.kind != "numeric"),
            ),
            kind=job.kind,
            query=job.query,
            database=job.database,
        )
        named = self._table.named
        categories = {*named.texts, *job.choice.categorical}
        self._card = card.model_copy(
            update={
                "model": job.model,
                "artefact": job.artefact or card.artefact,
                "baseline": None,
                "features": card.features
                or [
                    Feature(name=name, kind="categorical" if name in categories else "numeric")
                    for name in named.features
                ],
            }
        )

    def run(self) -> MadeBaseline:
        learnt = self._levels()
        self._declare(learnt)
        layout = self._layout((DEFAULT_OUTPUT,) if self._modelled else self._table.named.outputs)
        with self._model() as model:
            says = None if model is None else _Outputs(model, self._card)
            X, Y = self._sample(layout, says)
            outputs = self._outputs(layout, Y.shape[1])
            groups = self._groups(layout, X)
            grid = Grid.from_rows(X, Y, cells=cells_for(X.shape[1], Y.shape[1]))
            final = self._layout(outputs)
            state = self._sketch(layout, final, grid, says)
        scores = state.evaluate(final.groups)
        low, high = state.x_digests.minimum.tolist(), state.x_digests.maximum.tolist()
        ranges = {
            column.feature: (low[place], high[place])
            for place, column in enumerate(final.columns)
            if not column.categorical and state.x_digests.count[place]
        }
        card = self._card.model_copy(
            update={
                "outputs": list(outputs),
                "features": [_with_range(f, ranges.get(f.name)) for f in self._card.features],
                "baseline": baseline_of(grid, state, scores),
            }
        )
        return MadeBaseline(
            ModelCard.from_bytes(card.to_bytes()),
            groups,
            learnt,
            self._table.named.left_out,
            final,
            state,
            scores,
        )

    @property
    def _modelled(self) -> bool:
        return self._job.choice.modelled

    def _model(self) -> AbstractContextManager[OpenModel | None]:
        if not self._modelled:
            return nullcontext(None)
        return open_model(self._card, self._policy)

    def _layout(self, outputs: tuple[str, ...]) -> Layout:
        card = self._card.model_copy(update={"outputs": list(outputs)})
        return Layout.learn(card, {}, outputs, max_levels=self._options.max_levels)

    def _declare(self, levels: dict[str, list[str]]) -> None:
        self._card = self._card.model_copy(
            update={
                "features": [
                    f.model_copy(update={"levels": levels[f.name]}) if f.name in levels else f
                    for f in self._card.features
                ]
            }
        )
        columns = sum(1 + len(feature.levels or ()) for feature in self._card.features)
        if columns > self._options.max_columns:
            raise ConfigurationError(
                f"the features make {columns:,} columns, at most {self._options.max_columns:,} are "
                "possible (ingest.max_columns): declare fewer levels, or leave features out"
            )

    def _passing(self, what: str, reject: Reject) -> Iterator[Rows]:
        for rows in self._table.rows(reject):
            yield rows
            self._progress(what, *self._table.progress())

    def _levels(self) -> dict[str, list[str]]:
        """Return the levels, by frequency at most ``max_levels``, of categoricals that declare none."""
        counts: dict[str, Counter[str | None]] = {
            feature.name: Counter()
            for feature in self._card.features
            if feature.kind != "numeric" and feature.levels is None
        }
        if not counts:
            return {}
        for rows in self._passing("levels", _nobody):
            for name, count in counts.items():
                count.update(_categories(rows, name))
                if len(count) > _MOST_TEXTS:
                    raise ConfigurationError(
                        f"column {name!r} holds more than {_MOST_TEXTS:,} different texts: leave it out "
                        "with --leave-out, or declare its levels in a card"
                    )
        found: dict[str, list[str]] = {}
        for name, count in counts.items():
            known = [(level, rows) for level, rows in count.items() if level is not None]
            known.sort(key=lambda each: (-each[1], each[0]))
            found[name] = sorted(level for level, _ in known[: self._options.max_levels])
        return found

    def _sample(self, layout: Layout, says: _Outputs | None) -> tuple[Floats, Floats]:
        width = len(layout.columns) + len(layout.outputs)
        size = min(SAMPLE_ROWS, max(self._options.grid_rows, _SAMPLE_VALUES // width))
        sample = RowSample(size, len(layout.columns), len(layout.outputs))
        seen = 0
        for X, Y, _ in self._arrays("sample", layout, _nobody):
            numbers = np.arange(seen, seen + len(X))
            sample.update(hash_integers(numbers), X, Y, numbers)
            seen += len(X)
        if not seen:
            raise ConfigurationError(f"{self._table.source} holds no row that can be used")
        rows = sample.rows()
        return rows.X, rows.Y if says is None else says(rows.X)

    def _outputs(self, layout: Layout, count: int) -> tuple[str, ...]:
        """Return the outputs' names: the columns', the card's, or the positions of the model's."""
        if count > self._options.max_outputs:
            raise ConfigurationError(
                f"the model has {count} outputs, at most {self._options.max_outputs} are possible "
                "(ingest.max_outputs)"
            )
        named = tuple(self._card.outputs)
        if not self._modelled:
            if named and set(named) != set(layout.outputs):
                raise ConfigurationError(
                    f"--outputs are {list(layout.outputs)}, the card's are {list(named)}"
                )
            return named or layout.outputs
        if named and len(named) != count:
            raise ConfigurationError(f"the card names {len(named)} outputs, the model has {count}")
        return named or (
            (DEFAULT_OUTPUT,) if count == 1 else tuple(str(index) for index in range(count))
        )

    def _groups(self, layout: Layout, X: Floats) -> dict[str, list[str]]:
        """Group numeric features that move together, where the card does not; return the groups."""
        if self._job.group_threshold is None:
            return {}
        free = [
            place
            for place, column in enumerate(layout.columns)
            if not column.categorical and column.group is None
        ]
        taken = {*layout.groups, *(column.name for column in layout.columns)}
        found: dict[str, list[str]] = {}
        matrix = correlation(X[:, free])
        for members in propose_groups(matrix, threshold=self._job.group_threshold):
            names = [layout.columns[free[member]].feature for member in members]
            if len(names) > 1:
                found[_group_name(names, taken)] = names
        member_of = {name: group for group, names in found.items() for name in names}
        self._card = self._card.model_copy(
            update={
                "features": [
                    f.model_copy(update={"group": member_of[f.name]}) if f.name in member_of else f
                    for f in self._card.features
                ]
            }
        )
        return found

    def _sketch(
        self, layout: Layout, final: Layout, grid: Grid, says: _Outputs | None
    ) -> WindowState:
        pane = PaneSketch(grid, compression=self._options.compression, blocks=final.groups)
        order = [layout.outputs.index(name) for name in final.outputs] if says is None else None
        for X, Y, weight in self._arrays("rows", layout, self._reject):
            pane.update(X, Y[:, order] if says is None else says(X), weight)
        return WindowState.of(pane)

    def _arrays(
        self, what: str, layout: Layout, reject: Reject
    ) -> Iterator[tuple[Floats, Floats, Floats | None]]:
        place = 0
        for rows in self._passing(what, reject):
            try:
                if isinstance(rows, ArrowRows):
                    found = layout.encode_arrow(rows)
                    count = rows.rows
                else:
                    found = layout.encode(rows)
                    count = len(rows)
            except RejectedError as error:
                raise ConfigurationError(f"{self._table.source}: {error}") from None
            for problem in found.errors:
                reject(f"row {place + problem.index + 1}: {problem.message}")
            place += count
            if len(found.X):
                yield found.X, found.Y, found.weight


class _Outputs:
    """What the model says of rows of the stream's columns: (n, columns) to (n, c)."""

    def __init__(self, model: OpenModel, card: ModelCard) -> None:
        self._model = model
        self._inputs = Inputs(card)

    def __call__(self, X: Floats) -> Floats:
        Y = self._model(self._inputs.to_model(X, "columns"))
        return Y[:, None] if Y.ndim == 1 else Y


def _categories(rows: Rows, name: str) -> list[str | None]:
    if isinstance(rows, ArrowRows):
        column: Any = rows.features.get(name)
        return [] if column is None else texts(column, name)
    return [category(row.features.get(name)) for row in rows]


def _group_name(names: list[str], taken: set[str]) -> str:
    """Return the members' names together, shortened, and numbered where something is called so already."""
    joined = " + ".join(names)
    if len(joined) > _LONGEST_GROUP:
        joined = f"{names[0][:_LONGEST_GROUP]} + {len(names) - 1} more"
    name, number = joined, 2
    while name in taken:
        name, number = f"{joined} ({number})", number + 1
    taken.add(name)
    return name


def _with_range(feature: Feature, found: tuple[float, float] | None) -> Feature:
    """Return the feature with the table's range, where it does not declare one."""
    if found is None or feature.kind != "numeric" or (feature.low, feature.high) != (None, None):
        return feature
    return feature.model_copy(update={"low": found[0], "high": found[1]})


def _nobody(_: str) -> None:
    """Only the last pass tells of rows that are left out."""
