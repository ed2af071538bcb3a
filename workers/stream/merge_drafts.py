"""The parts of a snapshot of one partition's merge, of which only those are made that have changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from attributary.workers.stream.drift import DriftBook
from attributary.workers.stream.model_merge import ModelMerge
from attributary.workers.stream.snapshot_state import encode_state, part_name


class Draft(NamedTuple):
    """One part of a snapshot. ``make`` None: it is as it was at the same ``version``; ``needs`` as a
    model's draft has it."""

    name: str
    version: tuple[int, ...]
    make: Callable[[], bytes] | None
    needs: int | None = None


class ModelDrafts:
    """Drafts the parts of models; remembers from when on a model is to be drafted although nothing came."""

    def __init__(self) -> None:
        self._ages_at: dict[str, int | None] = {}

    def of(
        self,
        name: str,
        merge: ModelMerge,
        drift: DriftBook,
        begun: int,
        known: Mapping[str, tuple[int, ...]],
        clock: int,
    ) -> Iterator[Draft]:
        """Yield the parts of one model; ``begun`` numbers its layout, ``known`` as in ``drafts``."""
        model = part_name("model", name)
        version = begun, merge.changes
        ages_at = self._ages_at.get(name)
        if known.get(model) == version and (ages_at is None or clock < ages_at):
            yield Draft(model, version, None)
        else:
            draft = merge.draft(clock)
            self._ages_at[name] = draft.ages_at
            yield Draft(model, version, draft.make, draft.needs)
        for source in merge.closed_sources:
            share = part_name("share", name, *source)
            version = begun, merge.closings[source]
            new = known.get(share) != version
            yield Draft(share, version, merge.draft_shares(source) if new else None)
        references = part_name("drift", name)
        version = begun, drift.changes
        if known.get(references) == version:
            yield Draft(references, version, None)
        else:
            yield Draft(references, version, _drift_encoder(drift.copy()))


def _drift_encoder(book: DriftBook) -> Callable[[], bytes]:
    return lambda: encode_state(book.state())
