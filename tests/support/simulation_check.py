"""What must hold at the end of a simulated schedule: the books, row by row, against what was written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from exact import ExactWindow, cir_sums, scores
from simulated_rows import WINDOW, SimulatedRow
from simulation import TOPIC, Merger, Published, Sent, Simulation, compacted

from attributary.schemas.manifest import Manifest
from attributary.workers.maths.cir import cir
from attributary.workers.maths.sample import HashArray, in_fraction
from attributary.workers.stream.row_hashes import row_hashes

# What scores of real sketches may be off by on a grid that holds all values apart.
_CLOSE = 1e-6


def check(simulation: Simulation, *, close: float | None = None) -> None:
    """Compare what was published with what was written; AssertionError where they differ.

    ``close``: what the scores of real sketches may be off by. By default a grid learnt from the first 8 rows
    is not asked for scores.
    """
    truth = Truth(simulation, close)
    truth.check(simulation.merger)
    truth.check_manifests()
    late = [p.message.accounting.rows_late for p in simulation.merger.published.values()]
    simulation.happened["late"] += max(late, default=0) > 0
    simulation.happened["far future"] += truth.has_rejected("far_future")
    assert simulation.letters >= truth.letters, "dead letters are missing"
    assert simulation.letters <= truth.letters | truth.letters_taken, "dead letters of good rows"


def check_other_readers(simulation: Simulation) -> None:
    """A merge that starts afterwards, and one that finds a compacted log, publish the same books."""
    fresh, after_compaction = Merger(simulation), Merger(simulation)
    simulation.catch_up(fresh)
    simulation.catch_up(after_compaction, [compacted(log) for log in simulation.sketches])
    truth = Truth(simulation)
    truth.check(fresh)
    # Compaction moves records behind later ones, so that rows may look late: they are in the lifetime.
    truth.check(after_compaction, windows=False)
    # An owner whose log is cut behind it seals a block that another may have read on.
    if not simulation.learn and not simulation.may_lose:
        for key, bodies in _final_sketches(simulation):
            assert len(bodies) == 1, f"{key!r} is not the same whoever computes it"


class Truth:
    """What was written, and what of it nobody could count because retention took it."""

    def __init__(self, simulation: Simulation, close: float | None = None) -> None:
        self._simulation = simulation
        self._close = _CLOSE if close is None and not simulation.learn else close
        self._exact = not simulation.may_lose
        self._rows: dict[str, list[SimulatedRow]] = {name: [] for name in simulation.models}
        self._rejected: dict[str, Counter[str]] = {}
        self._windows: dict[tuple[str, int], list[SimulatedRow]] = {}
        #: Partitions by the number of a row that retention took.
        self._taken: dict[int, int] = {}
        self.letters: set[tuple[int, int]] = set()
        self.letters_taken: set[tuple[int, int]] = set()
        for source in simulation.sources:
            for offset, written in source.written.items():
                taken = simulation.may_lose and offset < source.beginning
                for row in written.rows:
                    self._rows[row.model].append(row)
                    start = row.time // WINDOW * WINDOW
                    self._windows.setdefault((row.model, start), []).append(row)
                    if taken:
                        self._taken[row.number] = source.partition
                for name, reason in written.rejected:
                    self._rejected.setdefault(name, Counter())[reason] += 1
                if written.rejected:
                    letters = self.letters_taken if taken else self.letters
                    letters.add((source.partition, offset))

    def check(self, merger: Merger, *, windows: bool = True) -> None:
        """Compare what a merge has published."""
        for model, rows in self._rows.items():
            if rows:
                self._check_lifetime(model, rows, merger)
        if windows:
            self._check_windows(merger)
        if self._exact:
            for core in merger.cores:
                assert not any(core.gaps().values()), f"gaps {core.gaps()}"

    def has_rejected(self, reason: str) -> bool:
        """Say whether a row was written that is to be rejected for this reason."""
        return any(reason in counts for counts in self._rejected.values())

    def _check_lifetime(self, model: str, rows: list[SimulatedRow], merger: Merger) -> None:
        published = merger.published.get((model, "lifetime", None))
        if published is None:
            assert not self._exact, f"nothing of {model}'s {len(rows)} rows is published"
            return
        accounting = published.message.accounting
        self._check_rows(published, rows, merger)
        if self._exact:
            assert accounting.rows == accounting.rows_accepted == len(rows), (
                f"lifetime {accounting.rows}, accepted {accounting.rows_accepted} of {len(rows)} rows"
            )
            rejected = self._rejected.get(model, Counter())
            assert accounting.rows_rejected == dict(rejected), "rejected"
            assert accounting.gaps == 0
            self._check_scores(published, rows)

    def _check_rows(self, published: Published, rows: list[SimulatedRow], merger: Merger) -> None:
        """Every row counts once, and one that retention took at most once, or is a gap."""
        if published.window is None:
            return
        held = set(published.window.rows)
        assert held <= {row.number for row in rows}, "rows that nobody wrote"
        if self._simulation.light:
            if self._exact:
                self._check_kept(published.window, rows)
            return
        missing = {row.number for row in rows} - held
        assert missing <= self._taken.keys(), f"rows {sorted(missing - self._taken.keys())}"
        gaps = {source[1] for core in merger.cores for source, gap in core.gaps().items() if gap}
        assert {self._taken[number] for number in missing} <= gaps, "a loss that is no gap"

    def _check_kept(self, window: ExactWindow, rows: list[SimulatedRow]) -> None:
        """Of each block the rows of one fraction are held, all of them, and stand for the others."""
        blocks: dict[tuple[int, int], list[SimulatedRow]] = {}
        manifests = list(_counting(self._simulation.sketches[0]))
        for row in rows:
            partition, offset, _ = row.place
            (block,) = (
                m.block
                for m in manifests
                if m.partition == partition and m.block <= offset < m.upto
            )
            blocks.setdefault((partition, block), []).append(row)
        held = set(window.rows)
        for place, within in blocks.items():
            found = {row.number: window.weights.get(row.number, 1) for row in within}
            found = {number: weight for number, weight in found.items() if number in held}
            assert any(
                found == {row.number: weight for row in within if _kept(row, 1 / weight)}
                for weight in (1, 2, 4)
            ), f"block {place} holds rows of no one fraction"

    def _check_scores(self, published: Published, rows: list[SimulatedRow]) -> None:
        found = {feature.name: feature.score for feature in published.message.features}
        if (window := published.window) is not None:
            held = set(window.rows)
            if not window.weights:
                sums = cir_sums([row.values for row in rows if row.number in held])
            else:
                sums = [0, 0, 0, 0]
                for row in rows:
                    weight = window.weights.get(row.number, 1) if row.number in held else 0
                    part = cir_sums([row.values])
                    sums = [a + weight * b for a, b in zip(sums, part, strict=True)]
            assert [found["x0"], found["x1"]] == scores(sums), "scores"
            return
        # A block of which a fraction is sketched weighs its rows by that, even where it happens to keep all.
        if self._close is None or published.message.accounting.fractions != [1.0]:
            return
        values = [row.values for row in rows]
        batch = cir(np.array(values)[:, :2], np.array(values)[:, 2:]).score[0]
        for score, name in zip(batch, ("x0", "x1"), strict=True):
            assert abs(found[name] - score) <= self._close, (
                f"{name}: {found[name]} instead of {score}"
            )

    def _check_windows(self, merger: Merger) -> None:
        watermarks = {m: w for core in merger.cores for m, w in core.watermarks().items()}
        for (model, start), rows in self._windows.items():
            sure = {row.number for row in rows if row.in_time and self._exact}
            published = merger.published.get((model, "tumbling", start))
            if published is None:
                closed = start + WINDOW <= watermarks.get(model, start)
                assert not (closed and sure), f"window {start} of rows {sure} is missing"
                continue
            count = published.message.accounting.rows
            assert len(sure) <= count <= len(rows), (
                f"window {start}: {len(sure)} <= {count} <= {len(rows)}"
            )
            if published.window is not None and not self._simulation.light:
                counted = set(published.window.rows)
                assert sure <= counted <= {row.number for row in rows}, f"window {start}"

    def check_manifests(self) -> None:
        """From outside: the manifests alone add up to what was written."""
        if not self._exact:
            return
        for log in self._simulation.sketches:
            accepted: Counter[str] = Counter()
            rejected: dict[str, Counter[str]] = {}
            for manifest in _counting(log):
                for name, count in manifest.models.items():
                    accepted[name] += count.rows_accepted
                    if count.rejected:
                        rejected.setdefault(name, Counter()).update(count.rejected)
            expected = {name: len(rows) for name, rows in self._rows.items()}
            assert dict(+accepted) == {n: c for n, c in expected.items() if c}, "accepted"
            assert rejected == self._rejected, "rejected rows in the manifests"


@lru_cache(maxsize=4096)
def _hash_of(place: tuple[int, int, int]) -> HashArray:
    partition, offset, index = place
    return row_hashes(f"{TOPIC}/{partition}", [offset], [index], None)


def _kept(row: SimulatedRow, fraction: float) -> bool:
    return bool(in_fraction(_hash_of(row.place), fraction)[0])


def _counting(log: list[Sent]) -> Iterator[Manifest]:
    """Yield the manifests that count, block by block; a later block inside an earlier one repeats it."""
    blocks: dict[tuple[int, int], Manifest] = {}
    for sent in log:
        if isinstance(manifest := sent.content, Manifest):
            known = blocks.get((manifest.partition, manifest.block))
            if manifest.upto > manifest.block and (
                known is None or _coverage(manifest) >= _coverage(known)
            ):
                blocks[manifest.partition, manifest.block] = manifest
    ends: dict[int, int] = {}
    for (partition, block), manifest in sorted(blocks.items()):
        if block >= ends.get(partition, 0):
            ends[partition] = manifest.upto
            yield manifest


def _coverage(manifest: Manifest) -> tuple[int, bool, int]:
    waiting = sum(count.waiting for count in manifest.models.values())
    return manifest.upto, manifest.sealed, -waiting


def _final_sketches(simulation: Simulation) -> Iterator[tuple[bytes, set[bytes]]]:
    """Yield (key, all different bodies) of the sketches that count a whole sealed block."""
    found: dict[bytes, set[bytes]] = {}
    for log in simulation.sketches:
        for sent in log:
            if not isinstance(sent.content, Manifest):
                header, body = sent.content
                if header.final:
                    found.setdefault(b"%s|%d" % (sent.key, header.epoch), set()).add(body)
    yield from found.items()
