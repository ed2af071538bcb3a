"""Merges the blocks of a source partition that are whole, in order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from attributary.schemas.manifest import Manifest
from attributary.workers.stream.held import SourceKey
from attributary.workers.stream.ledger import SourceLedger
from attributary.workers.stream.model_merge import ModelMerge


def close_blocks(
    source: SourceKey,
    ledger: SourceLedger,
    models: Mapping[str, ModelMerge],
    merges: Callable[[str], bool],
    grids_awaited: Collection[tuple[str, int, int]],
) -> None:
    """Merge the blocks that are whole, in order, and note how far event time has come.

    ``merges`` says which models' sketches count here, ``grids_awaited`` names blocks (topic, partition, first
    offset) with sketches whose grid is not known yet. Event time counts as reached once the rows that reach
    it are held, and all before them: else the others would seem late.
    """
    for block in ledger.drop_truncated():
        for merge in models.values():
            merge.forget(source, block)
    for merge in models.values():
        merge.forget_where(source, ledger.cuts)
    lacking: set[str] = set()
    in_order = True
    ledger.waits = False
    for manifest, in_log in ledger.in_order():
        waits = in_log and (*source, manifest.block) in grids_awaited
        ledger.waits = ledger.waits or waits
        lost = in_log and not waits
        mine = [name for name in manifest.models if merges(name)]
        held = {name for name in mine if _holds(source, manifest, name, models)}
        for name in mine:
            count = manifest.models[name]
            if name in held and not count.waiting and name not in lacking:
                ledger.reach(name, count.event_time)
            elif not lost:
                lacking.add(name)
        waiting = any(manifest.models[name].waiting for name in mine)
        whole = in_order and manifest.sealed and len(held) == len(mine)
        if whole and _readable(source, manifest.block, held, models):
            for name in held & models.keys():
                if manifest.models[name].accepted:
                    models[name].close(source, manifest.block)
                else:  # an owner that knew no grid for the model yet may have counted what this one refused
                    models[name].forget(source, manifest.block)
            ledger.close(manifest)
            # Sketches without a manifest of their own, of an owner that was cut off by truncation.
            for merge in models.values():
                merge.forget_where(source, ledger.counts)
        elif not lost:
            in_order = False
        elif not manifest.sealed and len(held) == len(mine) and not waiting:
            ledger.hold(manifest)
        elif ledger.drop_overtaken(manifest):
            for merge in models.values():
                merge.forget(source, manifest.block)
        else:
            ledger.release(manifest.block)


def _holds(
    source: SourceKey, manifest: Manifest, model: str, models: Mapping[str, ModelMerge]
) -> bool:
    count = manifest.models[model]
    merge = models.get(model)
    if merge is None:
        return not count.accepted
    return merge.holds(source, manifest.block, count)


def _readable(
    source: SourceKey, block: int, names: set[str], models: Mapping[str, ModelMerge]
) -> bool:
    """Say whether the block's sketches can be used; those that cannot are dropped, of all models."""
    merges = [models[name] for name in sorted(names & models.keys())]
    return not [merge for merge in merges if not merge.readable(source, block)]
