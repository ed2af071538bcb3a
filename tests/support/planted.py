"""Faults to plant in the cores or in the shell around them: the simulation must find each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from exact import ExactPane
from simulation import Faults

from attributary.workers.maths.pane import PaneSketch
from attributary.workers.stream.held import Held
from attributary.workers.stream.ledger import SourceLedger
from attributary.workers.stream.model_merge import ModelMerge
from attributary.workers.stream.open_sketches import OpenSketches

Method = Callable[..., Any]


@dataclass(frozen=True)
class Planted:
    """A fault of the shell, or other methods of a class of the cores."""

    faults: Faults = field(default_factory=Faults)
    kind: type = object
    methods: tuple[str, ...] = ()
    plant: Callable[[Method], Method] = lambda method: method

    @contextmanager
    def applied(self) -> Iterator[Faults]:
        """Plant it; what is given is for the simulation."""
        before = {name: getattr(self.kind, name) for name in self.methods}
        for name, method in before.items():
            setattr(self.kind, name, self.plant(method))
        try:
            yield self.faults
        finally:
            for name, method in before.items():
                setattr(self.kind, name, method)


def _adding(add: Method) -> Method:
    def faulty(sketches: OpenSketches, held: Held) -> bool:
        header = held.header
        known = sketches.block((header.topic, header.partition), header.block).get(header.pane)
        if known is None:
            return bool(add(sketches, held))
        kind = PaneSketch if held.body[:4] == b"PANE" else ExactPane
        both = kind.from_bytes(known.body)
        both.merge(kind.from_bytes(held.body))
        known.header = msgspec.structs.replace(
            header,
            rows=header.rows + known.header.rows,
            upto=max(header.upto, known.header.upto),
        )
        known.body = both.to_bytes()
        return True

    return faulty


def _lower_wins(add: Method) -> Method:
    def faulty(sketches: OpenSketches, held: Held) -> bool:
        header = held.header
        known = sketches.block((header.topic, header.partition), header.block).get(header.pane)
        return (known is None or header.upto < known.header.upto) and bool(add(sketches, held))

    return faulty


def _mixing(take: Method) -> Method:
    def faulty(sketches: OpenSketches, source: tuple[str, int], block: int) -> list[Held]:
        variants = [held for held in sketches.variants() if held.header.block == block]
        best: dict[int, Held] = {}
        for held in take(sketches, source, block):
            best[held.header.pane] = held
        for held in variants:
            header, known = held.header, best.get(held.header.pane)
            same = (header.topic, header.partition) == source
            if same and known is not None and header.rows >= known.header.rows:
                best[header.pane] = held
        return [best[pane] for pane in sorted(best)]

    return faulty


def _never(_: Method) -> Method:
    return lambda *_: False


#: By what they do.
PLANTED = {
    "commits before the acknowledgement": Planted(Faults(commit_before_acknowledgement=True)),
    "commits what is unfinished": Planted(Faults(commit_what_is_unfinished=True)),
    "adds instead of replacing": Planted(kind=OpenSketches, methods=("add",), plant=_adding),
    "keeps the lower sketch": Planted(kind=OpenSketches, methods=("add",), plant=_lower_wins),
    "takes panes of several variants": Planted(kind=OpenSketches, methods=("take",), plant=_mixing),
    "counts a closed block again": Planted(
        kind=SourceLedger, methods=("is_closed", "counts"), plant=_never
    ),
    "counts a truncated block twice": Planted(
        kind=SourceLedger, methods=("cuts", "counts"), plant=_never
    ),
    "closes a block without its sketches": Planted(
        kind=ModelMerge, methods=("holds",), plant=lambda _: lambda *_: True
    ),
}
