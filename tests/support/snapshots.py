"""A snapshots topic in memory: what one merge writes and another loads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attributary.workers.maths.wire import IncompatibleStateError
from attributary.workers.stream.merge import MergePartition
from attributary.workers.stream.resume import Resume
from attributary.workers.stream.snapshot_log import SnapshotRecord, SnapshotShelf, SnapshotWriter

Records = list[SnapshotRecord]


def snapshot(writer: SnapshotWriter, core: MergePartition, position: int) -> list[Records]:
    """Return a snapshot's records in the groups that are acknowledged one after the other; the caller
    tells ``writer`` when the last one, the index, is."""
    writer.begin()
    groups: list[Records] = []
    for draft in core.drafts(writer.versions):
        if draft.make is None:
            writer.keep(draft.name)
        else:
            groups.append(writer.put(draft.name, draft.version, draft.make(), draft.needs))
    return [*groups, writer.directory(), [writer.index(position)]]


def load(
    log: Sequence[SnapshotRecord], partition: int, new_core: Callable[[], MergePartition]
) -> tuple[MergePartition, Resume | None, list[str]]:
    """Return the merge that the newest usable snapshot makes, and what was wrong with newer ones."""
    shelf = SnapshotShelf(partition)
    for key, value in log:
        shelf.add(key, value)
    troubles = list(shelf.troubles)
    for index, parts in shelf.newest_first():
        core = new_core()
        try:
            return core, core.restore(parts(), index.position), troubles
        except IncompatibleStateError as error:
            troubles.append(str(error))
    return new_core(), None, troubles
