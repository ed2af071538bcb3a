"""Frames of ``top``, read as text: what leads, what drifts, whether rows keep coming, and hostile names."""

from __future__ import annotations

import io
from typing import Any

import pytest
from results import DAY, LIFETIME, MAY, attribution, drift, hopping, score
from rich.console import Console

from attributary.schemas.attribution import Window, WindowAttribution
from attributary.service.top.board import Board
from attributary.service.top.view import Choice, render

NOW = MAY + 90_000
ESCAPE = "\x1b]0;owned\x07\x1b[31m[red]x[/red]\r\n\u202e"


def frame(
    board: Board, choice: Choice | None = None, *, height: int | None = None, width: int = 120
) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream, width=width, color_system=None, highlight=False, markup=False, emoji=False
    )
    console.print(render(board, choice or Choice(), NOW, height=height, keys=height is not None))
    return stream.getvalue()


def line(rendered: str, word: str) -> str:
    return next(each for each in rendered.splitlines() if word in each)


def changed(message: WindowAttribution, **fields: Any) -> WindowAttribution:
    """Return the message with other fields, those of the accounting among them."""
    books = {k: v for k, v in fields.items() if k in type(message.accounting).model_fields}
    rest = {k: v for k, v in fields.items() if k not in books}
    accounting = message.accounting.model_copy(update=books)
    return message.model_copy(update={**rest, "accounting": accounting})


@pytest.fixture
def board() -> Board:
    found = Board("broker:9092")
    found.add(attribution(hopping(MAY)))
    found.add(drift(hopping(MAY), temp=3.25))
    return found


def test_it_shows_strength_interval_direction_effect_groups_and_drift(board: Board) -> None:
    rendered = frame(board)
    strongest = line(rendered, "dep_delay")
    for part in (" 1 ", "▲", "████████████ 1.00", "0.998", "0.990–1.006", "+46.2 ± 0.49"):
        assert part in strongest
    assert "▼ ██████████   0.85 0.074" in line(rendered, "visib")
    assert line(rendered, "visib").strip("│ ").startswith("2 ")
    assert "carriers ▲ 0.78 ±0.01" in line(rendered, "groups")
    assert "28 days to 2013-05-29, 5,000 rows, final" in rendered
    moved = line(rendered, "drift")
    assert (
        "against the first full window: output PSI 0.15 · temp 3.25 · humid 0.04 · wind 0.31"
        in moved
    )
    assert "ranking agrees 0.82" in moved


def test_marks_of_drift_need_more_than_chance() -> None:
    board = Board("b")
    scores = [score(name, 0.9, rank) for rank, name in enumerate(("temp", "wind", "humid"), 1)]
    board.add(attribution(hopping(MAY), features=scores))
    board.add(drift(hopping(MAY), temp=0.12))
    rendered = frame(board).splitlines()
    rows = {n: next(r for r in rendered if f" {n} " in r and "▲" in r) for n in ("temp", "wind")}
    assert "0.12 ! KS" in rows["temp"]
    assert "0.31 KS" in rows["wind"], "0.31 is within what chance gives"
    board.add(drift(hopping(MAY), temp=0.25).model_copy(update={"revision": 6000}))
    assert "0.25 !! KS" in frame(board)


def test_it_tells_rate_lag_watermark_rejections_and_gaps() -> None:
    board = Board("b")
    for second in range(6):
        board.add(
            changed(
                attribution(LIFETIME, watermark=MAY, revision=1000 * second),
                computed_at=NOW - 5000 + 1000 * second,
                rows_accepted=1000 * second,
                rows_rejected={"wrong_type": 500 * second},
                rows_late=7,
                gaps=3,
                offsets={"rows/0": (0, 40), "rows/1": (0, 10)},
            )
        )
    board.rows_ends, board.dead_letters = {"rows/0": 45, "rows/1": 30, "rows/2": 5}, 12
    board.committed = {"rows/1": 24, "rows/2": 5}
    head, books = frame(board).splitlines()[0], line(frame(board), "watermark")
    assert head == (
        "b · 1 model · 1,500 rows/s · lag 11 messages · 12 dead letters · 3 offsets lost"
    )
    assert "1,500 rows/s · watermark 2 min behind · 5,000 accepted" in books
    assert "wrong_type 2,500 rejected · 7 late · 3 gaps · told 0.0 s" in books
    board.models["flight-delay"].newest = None
    assert "watermark" not in frame(board)
    assert board.models["flight-delay"].rate(NOW + 11_000) == 0.0, "no rows come any more"


def test_keys_go_round_outputs_windows_and_models(board: Board) -> None:
    board.add(attribution(LIFETIME, final=False))
    board.add(attribution(hopping(MAY), output="cancelled"))
    decayed = Window(kind="decayed", start=0, end=MAY, half_life_seconds=3600.0)
    board.add(attribution(decayed, final=False, revision=7))
    board.add(attribution(hopping(MAY)).model_copy(update={"model": "other"}))
    choice = Choice()
    assert "arrival_delay (1 of 2) · hopping: 28 days" in frame(board, choice)
    choice.outputs_on += 1
    assert "cancelled (2 of 2) · hopping" in frame(board, choice)
    choice.outputs_on += 1
    choice.windows_on += 1
    assert "decayed: half-life 1 hour, 7 rows, so far" in frame(board, choice)
    choice.windows_on += 1
    assert "lifetime: all rows so far" in frame(board, choice)
    choice.windows_on += 1
    assert "hopping: 28 days" in frame(board, choice)
    assert "─ other ─" in frame(board)
    assert "─ other ─" in frame(board, Choice(model=3))
    assert "flight-delay" not in frame(board, Choice(model=3))
    assert "nothing of this output" in frame(board, Choice(output="none"))
    assert "nothing of this output" in frame(board, Choice(window="tumbling"))


def test_a_frame_stays_within_the_terminal() -> None:
    board = Board("b")
    features = [score(f"f{j}", 0.9, j + 1) for j in range(40)]
    for number in range(9):
        message = attribution(hopping(MAY), features=features)
        board.add(message.model_copy(update={"model": f"model-{number}"}))
    for height in (14, 24, 40, 100):
        for width in (60, 200):
            rendered = frame(board, height=height, width=width).splitlines()
            assert len(rendered) <= height, (height, width)
            assert max(map(len, rendered)) <= width
    assert "7 more models: model-2, model-3" in frame(board, height=26)


def test_hostile_names_are_escaped_and_nothing_at_all_is_a_frame_too() -> None:
    assert "waiting for the first attributions" in frame(Board("b"))
    assert "waiting" in frame(Board("b"), Choice(model=4), height=10)
    board = Board("b")
    message = attribution(
        hopping(10**17), output=ESCAPE, features=[score(ESCAPE, 0.9, 1)], watermark=10**17
    )
    board.add(changed(message, rows_rejected={ESCAPE: 3}))
    rendered = frame(board)
    assert not any(c in rendered for c in "\x1b\x07\r\u202e")
    assert "\\x1b]0;owned" in rendered
    assert "[red]" in rendered, "markup is text"
    empty = attribution(hopping(MAY + DAY)).model_copy(update={"features": [], "groups": []})
    board.add(empty)
    assert "5,000 rows" in frame(board)
