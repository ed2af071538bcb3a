"""The report's page: what it says in text, and hostile names as text and nothing else."""

from __future__ import annotations

import re

import pytest
from report_pages import HOSTILE, Words, document_of, full_board, made
from results import DAY, LIFETIME, MAY, attribution, hopping, score

from attributary.schemas.errors import ConfigurationError
from attributary.service.model_board import ModelBoard
from attributary.service.report.collect import chapters
from attributary.service.report.fitting import fitted
from attributary.service.report.markup import Markup, table, tag
from attributary.service.report.page import page


def test_the_page_tells_scores_errors_effects_drift_and_accounting() -> None:
    text = Words(made(full_board("dep_delay", "precip"))).text
    for part in (
        "Which features move flight-delay",
        "28 days to 2013-05-29 UTC hopping window, final",
        "▲ 0.900",
        "0.8920 to 0.9080",
        "2 ± 0.49",
        "12.50%",
        "Groups of features",
        "Dependence profiles",
        "Drift against the first full window (28 days to 2013-05-01 UTC)",
        "Drift against the window before (28 days to 2013-05-22 UTC)",
        "Large drift beyond chance: temp",
        "Kendall's tau 0.82",
        "wrong_type 12",
        "far_future 3",
        "attributary.rows/0 0 4,711",
        "2 offsets are covered by no manifest",
        "too late for any window 9",
        "shares of the rows that blocks were sketched at 0.25, 1",
        "of these, left out of the scores (lightweight mode) 321",
        "Jaccard of the first 8 0.75",
        "How to read it",
    ):
        assert part in text, part


def test_it_loads_nothing_and_its_policy_allows_its_own_style_alone() -> None:
    document = made(full_board("x"))
    words = Words(document)
    assert not {"script", "img", "link", "iframe", "object", "embed", "base"} & set(words.names)
    assert not {"src", "style", "onload", "action"} & words.attributes
    assert not re.search(r"url\(|@import|https?://|javascript:", document)
    assert "default-src 'none'" in document.replace("&#x27;", "'")


def test_hostile_names_are_text_and_nothing_else() -> None:
    board = full_board(HOSTILE, "x", output=HOSTILE)
    plain = full_board("name", "x", output="output")
    document, expected = made(board), made(plain)
    assert Words(document).names == Words(expected).names, "no name makes an element"
    assert "\x00" not in document
    assert "\x1b" not in document
    assert "\u202e" not in document
    assert "<script>alert(1)</script>" in Words(document).text


def test_windows_are_chosen_by_kind_and_the_newest_final_one_by_default() -> None:
    board = full_board("x")
    board.add(attribution(hopping(MAY + 7 * DAY), final=False, revision=3))
    board.add(attribution(LIFETIME, final=False))
    (chapter,) = chapters(board)
    assert (chapter.attribution.window.kind, chapter.attribution.window.start) == ("hopping", MAY)
    assert [found.reference for found in chapter.drifts] == ["baseline", "preceding"]
    (chapter,) = chapters(board, window="lifetime")
    assert (chapter.attribution.window.kind, chapter.drifts) == ("lifetime", ())
    assert "compared with nothing" in made(board, window="lifetime")
    board.add(attribution(hopping(MAY), output="cancelled"))
    names = [found.attribution.output for found in chapters(board)]
    assert names == ["arrival_delay", "cancelled"]
    (chapter,) = chapters(board, outputs=["cancelled"])
    assert chapter.attribution.output == "cancelled"


def test_what_is_not_there_is_said() -> None:
    with pytest.raises(ConfigurationError, match=r"no output 'y'.*there are arrival_delay"):
        chapters(full_board("x"), outputs=["y"])
    with pytest.raises(ConfigurationError, match=r"decayed windows.*its windows are hopping"):
        chapters(full_board("x"), window="decayed")


def test_empty_and_undefined_numbers_make_a_page_too() -> None:
    board = ModelBoard("m")
    bare = score("x", 0.5, 1)
    message = attribution(LIFETIME, features=[bare])
    board.add(
        message.model_copy(update={"output_quartiles": None, "groups": [], "watermark": None})
    )
    document = made(board)
    assert "nan" not in document
    board = ModelBoard("m")
    board.add(message.model_copy(update={"features": [], "groups": []}))
    assert "This window has no scores." in made(board)


def test_it_says_how_old_its_rows_are_and_where_more_of_them_are() -> None:
    board = full_board("x")
    few = attribution(hopping(MAY + 7 * DAY), revision=83, watermark=MAY + 36 * DAY)
    board.add(few)
    board.add(attribution(LIFETIME, revision=30_000, final=False))
    made_at = MAY + 36 * DAY + 54 * 60_000
    text = Words(page("m", chapters(board), made_at=made_at, top=20)).text
    assert "28 days to 2013-06-05 UTC" in text
    assert "2013-06-06, 54 min before this page watermark, UTC" in text
    assert "Few rows: intervals are wide. `--window lifetime` shows all 30,000." in text
    lifetime = Words(page("m", chapters(board, window="lifetime"), made_at=made_at, top=20)).text
    assert "2013-06-06, 54 min before this page" in lifetime, "the newest that any result tells of"
    assert "Few rows" not in lifetime
    assert "Few rows" not in made(full_board("x"))


def test_long_names_keep_both_ends_and_the_table_has_them_whole() -> None:
    assert fitted("dep_delay", 18.0) == "dep_delay"
    name = "average_daily_" + "very_" * 30 + "long_name_of_march"
    shown = fitted(name, 18.0)
    assert re.fullmatch(r"average_.*….*_march", shown)
    assert 20 < len(shown) < 34
    assert len(fitted("W" * 40, 18.0)) < len(fitted("i" * 99, 18.0))
    assert fitted("列" * 30, 18.0).count("列") <= 17
    document = document_of(score(name, 0.9, 1))
    assert f'title="{name}">{shown}</span>' in document
    assert f'<th scope="row">{name}</th>' in document


def test_every_table_has_a_caption_and_every_column_a_title() -> None:
    document = made(full_board("x"))
    assert document.count("<table") == document.count("<caption>") > 5
    assert '<th scope="col"></th>' not in document
    assert '<nav aria-label="' in document


def test_an_output_that_is_named_twice_is_one_chapter() -> None:
    assert len(chapters(full_board("x"), outputs=["arrival_delay", "arrival_delay"])) == 1


def test_markup_escapes_everything_that_is_not_markup() -> None:
    assert tag("b", "<i>", Markup("<u></u>"), None, title='"&') == (
        '<b title="&quot;&amp;">&lt;i&gt;<u></u></b>'
    )
    assert "<td>&lt;x&gt;</td>" in table("c", ("a", "b"), [("1", "<x>")])
