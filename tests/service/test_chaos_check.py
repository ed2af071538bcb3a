"""The fault run's verdict: each thing that could be wrong with the books, planted, and found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from aiokafka import ConsumerRecord
from chaos_check import findings
from chaos_rows import MODEL, NAMES, InLog, Workload

from attributary.schemas.attribution import Accounting as Told
from attributary.schemas.attribution import FeatureScore, Window, WindowAttribution
from attributary.schemas.dead_letter import DeadLetter, Origin
from attributary.service.accounting import Accounting, ModelAccount, SourceAccount
from attributary.workers.maths.cir import cir

_WORKLOAD = Workload.draw(5000, seed=1)
_LETTERS = frozenset(Origin("rows", 0, offset) for offset in range(len(_WORKLOAD.bad)))
_LOG = InLog(np.ones(5000, dtype=np.int64), _LETTERS, _WORKLOAD.rejected, strange=0)
_SOURCE = SourceAccount(start=0, upto=5000, covered=5000, gaps=0, overlaps=0, end=5000)


def _account(
    accepted: int = 5000, rejected: int = _WORKLOAD.rejected, waiting: int = 0, **of: int
) -> Accounting:
    model = ModelAccount(accepted, {"wrong-type": rejected}, waiting)
    return Accounting({MODEL: model}, {("rows", 0): replace(_SOURCE, **of)})


def _message(rows: int = 5000, gaps: int = 0, off: float = 0.0) -> WindowAttribution:
    scores = cir(_WORKLOAD.X, _WORKLOAD.y[:, None]).score[0] + off
    told = Told(
        rows=rows, rows_accepted=rows, rows_rejected={}, rows_late=0, offsets={}, duplicates=0, gaps=gaps
    )  # fmt: skip
    features = [
        FeatureScore(
            name=name, score=score, stderr=None, interval=(0, 1), effective_rows=1.0, direction=0,
            strength_low=0.0, rank=1,
        )
        for name, score in zip(NAMES, scores.tolist(), strict=True)
    ]  # fmt: skip
    return WindowAttribution(
        model=MODEL, output="y", window=Window(kind="lifetime", start=0, end=1), revision=rows,
        final=False, watermark=None, computed_at=0, epochs=[0], output_quartiles=None,
        features=features, groups=[], accounting=told,
    )  # fmt: skip


def _letters(skipped: int = 0) -> list[ConsumerRecord]:
    return [
        ConsumerRecord(
            "letters", 0, 0, 0, 0, None, value, None, 0, 0,
            tuple(DeadLetter(*origin, "wrong-type", "", 0).headers()),
        )
        for origin, value in list(zip(sorted(_LETTERS), _WORKLOAD.bad, strict=True))[skipped:]
    ]  # fmt: skip


def _failing(log: InLog = _LOG, account=None, messages=None, letters=None) -> list[str]:
    found = findings(
        _WORKLOAD,
        log,
        account or _account(),
        [_message()] if messages is None else messages,
        _letters() if letters is None else letters,
    )
    return [finding.what for finding in found if not finding.holds]


def test_books_that_close_pass() -> None:
    assert len(_WORKLOAD.bad) > 3
    assert _failing() == []
    assert _failing(messages=[_message(4000, off=0.1), _message()]) == []
    assert _failing(letters=_letters() * 2) == []


@pytest.mark.parametrize(
    ("planted", "what"),
    [
        ({"account": _account(accepted=4999)}, "published = accepted + rejected"),
        ({"account": _account(accepted=5001)}, "published = accepted + rejected"),
        ({"account": _account(rejected=0)}, "published = accepted + rejected"),
        ({"account": _account(waiting=1)}, "published = accepted + rejected"),
        ({"account": _account(gaps=1)}, "no gap"),
        ({"account": _account(overlaps=1)}, "no gap"),
        ({"messages": []}, "the lifetime"),
        ({"messages": [_message(4999)]}, "the lifetime"),
        ({"messages": [_message(5001), _message()]}, "the lifetime"),
        ({"messages": [_message(gaps=1)]}, "the lifetime"),
        ({"messages": [_message(off=0.002)]}, "streamed scores"),
        ({"messages": [_message(off=float("nan"))]}, "streamed scores"),
        ({"letters": _letters(1)}, "dead letters"),
        ({"log": replace(_LOG, strange=1)}, "every published row"),
    ],
)
def test_what_is_wrong_is_found(planted: dict[str, object], what: str) -> None:
    failing = _failing(**planted)
    assert any(name.startswith(what) for name in failing), failing
