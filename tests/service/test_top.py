"""Frames of ``top``, read as text: what leads, what drifts, whether rows keep coming, and hostile names."""

from __future__ import annotations

import io
from typing import Any

import pytest
from results import DAY, LIFETIME, MAY, attribution, drift, hopping, score
from rich.cells import cell_len
from rich.console import Console

from attributary.schemas.attribution import Window, WindowAttribution
from attributary.service.accounting import Accounting, ModelAccount, SourceAccount
from attributary.service.cells import shortened, worst
from attributary.service.model_board import ModelBoard
from attributary.service.subscription import Result
from attributary.service.top.board import Board
from attributary.service.top.choice import Choice
from attributary.service.top.lines import flow, part
from attributary.service.top.view import render

NOW = MAY + 90_000
ESCAPE = "\x1b]0;owned\x07\x1b[31m[red]x[/red]\r\n\u202e"


def frame(
    board: Board, choice: Choice | None = None, *, height: int | None = None, width: int = 120
) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream, width=width, color_system=None, highlight=False, markup=False, emoji=False
    )
    console.print(
        render(board, choice or Choice(), NOW, width=width, height=height, keys=height is not None)
    )
    return stream.getvalue()


def add(board: Board, *messages: Result) -> None:
    for message in messages:
        board.models.setdefault(message.model, ModelBoard(message.model)).add(message)


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
    add(found, attribution(hopping(MAY)))
    add(found, drift(hopping(MAY), temp=3.25))
    return found


def test_it_shows_strength_interval_direction_effect_groups_and_drift(board: Board) -> None:
    rendered = frame(board, width=140)
    strongest = line(rendered, "dep_delay")
    for cell in (" 1 ", "▲", "████████████ 1.00", "0.998", "0.990–1.006", "+46.2 ± 0.49"):
        assert cell in strongest
    assert "▼ ██████████   0.85 0.074" in line(rendered, "visib")
    assert line(rendered, "visib").strip("│ ").startswith("2 ")
    assert "carriers ▲ 0.78 ±0.01" in line(rendered, "groups")
    assert "28 days to 2013-05-29, 5,000 rows, final" in rendered
    moved = line(rendered, "drift")
    assert "against the first full window · output arrival_delay PSI 0.15 !" in moved
    assert "temp 3.25 !! · humid 0.04 · wind 0.31 · ranking agrees 0.82" in rendered


def test_marks_of_drift_need_more_than_chance() -> None:
    board = Board("b")
    scores = [score(name, 0.9, rank) for rank, name in enumerate(("temp", "wind", "humid"), 1)]
    add(board, attribution(hopping(MAY), features=scores))
    add(board, drift(hopping(MAY), temp=0.12))
    rendered = frame(board).splitlines()
    rows = {n: next(r for r in rendered if f" {n} " in r and "▲" in r) for n in ("temp", "wind")}
    assert "0.12 ! KS" in rows["temp"]
    assert "0.31 KS" in rows["wind"], "0.31 is within what chance gives"
    add(board, drift(hopping(MAY), temp=0.25).model_copy(update={"revision": 6000}))
    assert "0.25 !! KS" in frame(board)


def test_it_tells_rate_lag_watermark_rejections_and_gaps() -> None:
    board = Board("b")
    for second in range(6):
        add(
            board,
            changed(
                attribution(LIFETIME, watermark=MAY, revision=1000 * second),
                computed_at=NOW - 5000 + 1000 * second,
                rows_accepted=1000 * second,
                rows_rejected={"wrong_type": 500 * second},
                rows_late=7,
                gaps=3,
            ),
        )
    board.dead_letters, board.skipped = 1, 1
    rendered = frame(board, width=140)
    head, books = rendered.splitlines()[0], line(rendered, "watermark")
    assert head == (
        "3 offsets lost · 1 dead letter · 1 result unreadable · b · lag unknown"
        " · reading the newest results · 1 model · 1,500 rows/s"
    )
    assert "1,500 rows/s · watermark 2 min behind · 5,000 accepted" in books
    assert "wrong_type 2,500 rejected · 7 late · 3 gaps · told 0.0 s" in rendered
    board.models["flight-delay"].newest = None
    assert "watermark" not in frame(board)
    assert board.models["flight-delay"].rate(NOW + 11_000) == 0.0, "no rows come any more"


def test_keys_go_round_outputs_windows_and_models(board: Board) -> None:
    add(board, attribution(LIFETIME, final=False))
    add(board, attribution(hopping(MAY), output="cancelled"))
    decayed = Window(kind="decayed", start=0, end=MAY, half_life_seconds=3600.0)
    add(board, attribution(decayed, final=False, revision=7))
    add(board, attribution(hopping(MAY)).model_copy(update={"model": "other"}))
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
    assert "no output 'none': there are arrival_delay, cancelled" in frame(
        board, Choice(output="none")
    )
    assert "no tumbling windows: there are decayed, hopping, lifetime" in frame(
        board, Choice(window="tumbling")
    )


def test_a_frame_stays_within_the_terminal() -> None:
    board = Board("b")
    features = [score(f"f{j}", 0.9, j + 1) for j in range(40)]
    for number in range(9):
        message = attribution(hopping(MAY), features=features)
        add(board, message.model_copy(update={"model": f"model-{number}"}))
    for height in (14, 24, 40, 100):
        for width in (60, 200):
            rendered = frame(board, height=height, width=width).splitlines()
            assert len(rendered) <= height, (height, width)
            assert max(map(len, rendered)) <= width
    assert "7 more models · model-2 · model-3" in frame(board, height=26)


def test_hostile_names_are_escaped_and_nothing_at_all_is_a_frame_too() -> None:
    assert "reading the newest results" in frame(Board("b"))
    assert "waiting" not in frame(Board("b"))
    nothing = Board("b", caught_up=True)
    assert "waiting for the first attributions" in frame(nothing)
    assert "waiting" in frame(nothing, Choice(model=4), height=10)
    board = Board("b")
    message = attribution(
        hopping(10**17),
        output=ESCAPE,
        features=[score(ESCAPE, 0.9, 1), score("[red]", 0.8, 2)],
        watermark=10**17,
    )
    add(board, changed(message, rows_rejected={ESCAPE: 3}))
    rendered = frame(board)
    assert not any(c in rendered for c in "\x1b\x07\r\u202e")
    assert "\\x1b]0;owned" in rendered
    assert "[red]" in rendered, "markup is text"
    empty = attribution(hopping(MAY + DAY)).model_copy(update={"features": [], "groups": []})
    add(board, empty)
    assert "5,000 rows" in frame(board)


NAMES = [
    "tenure",
    "a_name_of_sixty_characters_whose_end_tells_it_from_others_01",
    "a_name_of_sixty_characters_whose_end_tells_it_from_others_02",
    "特徴量の名前がとても長い場合でも端末の幅に収まるように短縮する",
    *(f"feature_{number}" for number in range(5, 11)),
]


def busy(names: list[str] = NAMES) -> Board:
    """A board that has much to tell of one model with ten features."""
    board = Board("broker-1.example.com:9092")
    board.dead_letters, board.skipped = 12, 3
    scores = [
        score(name, 0.951 - 0.05 * place, place + 1, effect=8.75, effect_stderr=0.61, missing=0.125)
        for place, name in enumerate(names)
    ]
    told = changed(
        attribution(hopping(MAY), features=scores),
        rows_rejected={"wrong_type": 1234},
        rows_late=5,
        gaps=7,
    )
    moved = drift(hopping(MAY))
    columns = [moved.features[1].model_copy(update={"name": name}) for name in names]
    add(board, told, moved.model_copy(update={"features": columns}))
    return board


@pytest.mark.parametrize("width", [118, 80, 60, 40])
def test_a_narrow_terminal_has_fewer_columns_and_no_number_is_cut(width: int) -> None:
    rendered = frame(busy(), width=width, height=24).splitlines()
    assert len(rendered) <= 24
    assert max(map(cell_len, rendered)) <= width
    rows = [each for each in rendered if "▲" in each and "groups" not in each]
    assert len(rows) == 10, "all of them have room"
    titles = next(each for each in rendered if "CIR" in each)
    for place, row in enumerate(rows):
        value = 0.951 - 0.05 * place
        cells = row.strip("│ ").split()
        assert cells[0] == str(place + 1)
        assert cells[2] == "▲"
        assert f" {value:.3f} {value - 0.008:.3f}–{value + 0.008:.3f} " in row
        assert ("+8.75 ± 1.2" in row) == ("effect" in titles) == (width >= 60)
        assert ("3.25 !! KS" in row) == ("PSI" in titles) == (width >= 80)
        assert (f" {2 * value - 1:.2f} " in row) == ("strength" in titles) == (width >= 80)
        assert ("12.5%" in row) == ("missing" in titles) == (width >= 118)
        assert row.count("…") <= 1, "only the name is shortened"
    for place, end in enumerate(("01", "02"), 1):
        assert f"{end} ▲" in rows[place], "the end tells one name from the other"
    assert "特徴" in rows[3]
    for alarm in ("7 offsets lost", "12 dead letters", "3 results unreadable", "lag unknown"):
        assert any(alarm in each for each in rendered[:4]), alarm
    assert rendered[0].startswith("7 offsets lost")


def test_height_that_is_there_is_used() -> None:
    names = [f"feature_{number}" for number in range(40)]
    for height in (24, 40):
        rendered = frame(busy(names), width=80, height=height).splitlines()
        assert len(rendered) == height
        assert "more" in rendered[-6] + rendered[-5] + rendered[-4] + rendered[-3]
    assert len([each for each in frame(busy(names)).splitlines() if "feature_" in each]) >= 12
    assert "and 28 more" in frame(busy(names)), "without an end twelve are shown"
    assert "and 35 more" in frame(busy(names), Choice(features=5), height=40)


def test_names_are_shortened_in_their_middle_to_cells() -> None:
    assert shortened("carrier=United", 14) == "carrier=United"
    assert shortened("carrier=United", 9) == "carr…ited"
    wide = shortened("特徴量の名前", 8)
    assert (wide, cell_len(wide)) == ("特徴…前", 7)
    assert shortened("abc", 1) == "…"
    assert cell_len(shortened("a\x1b" * 20, 12)) == 12


def test_the_least_important_parts_of_a_line_go_first() -> None:
    parts = [part(0, "alarm"), part(3, "aaaa"), part(1, "bbbb"), part(3, "cccc")]

    def lines(width: int, most: int | None) -> list[str]:
        return [text.plain for text in flow(parts, width, most)]

    assert lines(26, 1) == ["alarm · aaaa · bbbb · cccc"]
    assert lines(25, 1) == ["alarm · aaaa · bbbb"]
    assert lines(13, 1) == ["alarm · bbbb"]
    assert lines(8, 1) == ["alarm"]
    assert lines(4, 1) == ["ala…"]
    assert lines(13, None) == ["alarm · aaaa", "bbbb · cccc"]
    assert flow([], 10, 1) == []
    (mixed,) = flow([part(0, "bold", "bold"), part(0, "plain")], 20, 1)
    assert [(s.start, s.end, s.style) for s in mixed.spans] == [(0, 4, "bold"), (4, 7, "dim")]
    assert mixed.style == "", "a style ends with its part"


def books(*, lag: int, accepted: dict[str, int], start: int = 0, upto: int = 40) -> Accounting:
    source = SourceAccount(start=start, upto=upto, covered=upto, gaps=0, overlaps=0, end=upto + lag)
    models = {name: ModelAccount(accepted=rows) for name, rows in accepted.items()}
    return Accounting(models, {("rows", 0): source})


def test_lag_is_what_no_manifest_counts_and_merges_distance_is_told_apart() -> None:
    board = Board("b", caught_up=True)
    add(board, changed(attribution(LIFETIME), offsets={"rows/0": (0, 10)}, rows_accepted=100))
    board.accounting = books(lag=0, accepted={"flight-delay": 100, "other": 16})
    assert "lag 0 messages · 1 model" in frame(board), "whatever the shown results cover"
    board.complete = True
    assert "lag 0 messages · 16 rows counted, not in results yet · 1 model" in frame(board)
    board.model = "flight-delay"
    assert "not in results yet" not in frame(board), "another model's rows"
    board.accounting = books(lag=1, accepted={"flight-delay": 101})
    assert "lag 1 message · 1 row counted, not in results yet · 1 model" in frame(board)
    board.accounting = books(lag=1, accepted={"flight-delay": 101}, start=5)
    assert "not in results yet" not in frame(board), "manifests of earlier rows are gone"


def test_a_log_that_ends_before_what_was_counted_is_an_alarm() -> None:
    board = Board("b")
    board.accounting = books(lag=0, accepted={}, upto=40)
    assert "ends before" not in frame(board)
    board.accounting = books(lag=-1, accepted={}, upto=40)
    assert frame(board).startswith("rows/0 ends before what was counted of it · b · ")


def test_an_arrow_points_nowhere_while_the_interval_holds_one_half() -> None:
    board = Board("b")
    sure, unsure = score("sure", 0.6, 1), score("unsure", 0.6, 2)
    unsure = unsure.model_copy(update={"interval": (0.45, 0.75), "strength_low": 0.0})
    message = attribution(hopping(MAY), features=[sure, unsure])
    add(board, message.model_copy(update={"groups": [unsure.model_copy(update={"name": "few"})]}))
    rendered = frame(board)
    assert " sure ▲ ".replace(" ", "") in line(rendered, " sure ").replace(" ", "")
    assert "unsure·▒▒" in line(rendered, " unsure ").replace(" ", "")
    assert "few · 0.60" in line(rendered, "groups")


def test_the_drift_line_begins_with_what_is_beyond_chance() -> None:
    message = drift(hopping(MAY))
    columns = [
        column.model_copy(update={"psi": psi, "psi_critical": critical})
        for column, psi, critical in zip(
            message.features, (0.9, 0.2, 0.3, None), (1.0, 0.1, None, 0.1), strict=True
        )
    ]
    assert [column.psi for column in worst(columns, 4)] == [0.3, 0.2, 0.9, None]
    within = message.output_drift.model_copy(update={"psi_critical": 0.5})
    board = Board("b")
    add(board, attribution(hopping(MAY)), message.model_copy(update={"output_drift": within}))
    assert "· output PSI 0.15 · temp" in frame(board)
    small = message.output_drift.model_copy(update={"psi": 0.03})
    add(board, message.model_copy(update={"output_drift": small}))
    assert "· output arrival_delay PSI 0.03 beyond chance · temp" in frame(board)


def test_what_was_asked_for_and_is_not_there_is_named_with_what_is() -> None:
    board = Board("b", model="nothere", caught_up=True, named={"churn"}, registered={"fraud"})
    why = Choice().absent(board)
    assert why == "no model 'nothere': there are churn, fraud"
    assert f"waiting: {why}" in frame(board)
    board.model = "fraud"
    assert "'fraud' is known and has no results yet" in (Choice().absent(board) or "")
    assert Choice().absent(Board("b", model="x")) == "no model 'x': there is none"
    board = Board("b")
    assert Choice(output="nope").absent(board) is None, "there is nothing to choose from"
    add(board, attribution(hopping(MAY)))
    assert Choice().absent(board) is None
    assert Choice(output="nope").absent(board) == (
        "flight-delay has no output 'nope': there are arrival_delay"
    )
    assert Choice(window="decayed").absent(board) == (
        "flight-delay has no decayed windows: there are hopping"
    )
    add(board, attribution(hopping(MAY), output="nope").model_copy(update={"model": "other"}))
    assert Choice(output="nope").absent(board) is None, "one of the models has it"


def test_models_without_a_result_among_those_read_are_named() -> None:
    board = Board("b", caught_up=True, registered={"flight-delay", "quiet"}, named={"busy"})
    add(board, attribution(hopping(MAY)))
    assert "no recent result (--model NAME reads all): busy, quiet" in frame(board)
    board.complete = True
    assert "no result yet: busy, quiet" in frame(board)
    board.older = 0.43
    assert "43% of the older results read" in frame(board)
    assert "no result yet" not in frame(board)


def test_a_broker_that_does_not_answer_is_the_first_thing_told() -> None:
    board = busy()
    board.answered, board.trouble = NOW - 12_000, ""
    for width in (118, 40):
        assert frame(board, width=width, height=24).startswith("broker not answering for 12.0 s")
    board.trouble = "the topic rows does not exist"
    assert frame(board).startswith("the topic rows does not exist, for 12.0 s · 7 offsets lost")
