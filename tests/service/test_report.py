"""The report's page: its numbers as text, its figures to scale, hostile names as text, and a real browser."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser import needs_chromium, show
from results import DAY, LIFETIME, MAY, attribution, drift, hopping, score

from attributary.schemas.attribution import FeatureScore, LightAgreement, Profile, WindowAttribution
from attributary.schemas.errors import ConfigurationError
from attributary.service.model_board import ModelBoard
from attributary.service.report.axes import Axis, short, spanning
from attributary.service.report.collect import chapters
from attributary.service.report.figures import interval_figure, profile_figure, score_marks
from attributary.service.report.markup import Markup, table, tag
from attributary.service.report.page import page

HOSTILE = "</style></title></svg><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x00\x1b[31m\u202e"
PROFILE = Profile(
    edges=[1.0, 2.0, 3.0], mean=[0.5, None, 1.5, 2.5], stderr=[0.1, None, 0.1, 0.2],
    rows=[10, 0, 10, 10],
)  # fmt: skip


def features(*names: str) -> list[FeatureScore]:
    return [
        score(
            name, 0.9 - 0.1 * place, place + 1, effect=2.0 - place, effect_stderr=0.25,
            missing=0.125, mutual_information=0.3, profile=PROFILE if place == 0 else None,
        )
        for place, name in enumerate(names)
    ]  # fmt: skip


def with_books(message: WindowAttribution, **fields: Any) -> WindowAttribution:
    accounting = message.accounting.model_copy(update=fields)
    return message.model_copy(update={"accounting": accounting})


def full_board(*names: str, output: str = "arrival_delay") -> ModelBoard:
    board = ModelBoard("flight-delay")
    message = attribution(hopping(MAY), output=output, features=features(*names))
    board.add(
        with_books(
            message,
            rows_rejected={"wrong_type": 12, "far_future": 3},
            offsets={"attributary.rows/0": (0, 4711)},
            gaps=2,
            rows_late=9,
            fractions=[0.25, 1.0],
            rows_thinned=321,
        ).model_copy(
            update={
                "light_agreement": LightAgreement(
                    rows=800, rows_light=200, fractions=[0.25], jaccard_at_8=0.75, kendall=0.91,
                    spearman=0.95, procrustes=0.02, symmetric_kl=0.01,
                )
            }
        )
    )  # fmt: skip
    found = drift(hopping(MAY), output=output)
    board.add(found)
    board.add(
        found.model_copy(
            update={"reference": "preceding", "reference_window": hopping(MAY - 7 * DAY)}
        )
    )
    return board


def made(board: ModelBoard, **choice: Any) -> str:
    return page(board.name, chapters(board, **choice), made_at=MAY, top=20)


class Words(HTMLParser):
    """The page's elements, and its text."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: set[str] = set()
        self.words: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def test_the_page_tells_scores_errors_effects_drift_and_accounting() -> None:
    text = Words(made(full_board("dep_delay", "precip"))).text
    for part in (
        "Which features move flight-delay",
        "28 days to 2013-05-29 hopping window, final",
        "▲ 0.900",
        "0.8920 to 0.9080",
        "2 ± 0.49",
        "12.50%",
        "Groups of features",
        "Dependence profiles",
        "Drift against the first full window (28 days to 2013-05-01)",
        "Drift against the window before (28 days to 2013-05-22)",
        "Large drift beyond chance: temp.",
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


def numbers(svg: str, pattern: str) -> list[float]:
    return [float(found) for found in re.findall(pattern, svg)]


def test_points_and_error_bars_stand_where_their_values_are() -> None:
    svg = interval_figure(
        score_marks([score("a", 0.25, 1), score("b", 0.5, 2)]), "t", axis=(0.0, 1.0), neutral=0.5
    )
    start, stop = 190.0, 610.0
    assert numbers(svg, r'cx="([\d.]+)"') == [start + 0.25 * (stop - start), (start + stop) / 2]
    bars = re.findall(r'<line x1="([\d.]+)" x2="([\d.]+)"[^>]* class="bar down">', svg)
    low, high = start + (0.25 - 0.008) * (stop - start), start + (0.25 + 0.008) * (stop - start)
    assert [tuple(map(float, bar)) for bar in bars] == [(low, high), (low, low), (high, high)]
    assert 'class="point none"' in svg


def test_a_profile_leaves_unknown_cells_out() -> None:
    (found,) = [profile_figure(features("x")[0], PROFILE)]
    assert found is not None
    assert found.count('class="dot"') == 3
    assert "nan" not in found
    nothing = Profile(edges=[], mean=[None], stderr=[None], rows=[0])
    assert profile_figure(features("x")[0], nothing) is None


def test_axes_hold_any_value_and_ticks_are_round() -> None:
    axis = Axis(0.0, 1.0, 100.0, 200.0)
    assert [axis.at(v) for v in (-5.0, 0.0, 0.25, 1.0, 1e300)] == [100, 100, 125, 200, 200]
    assert axis.ticks() == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert Axis(3.0, 3.0, 0.0, 10.0).at(3.0) == 5.0
    wide = spanning([-1e308, 1e308, float("nan"), float("inf")], 0.0, 10.0)
    assert 0.0 <= wide.at(0.0) <= 10.0
    assert wide.ticks()
    assert spanning([], 0.0, 1.0, zero=True).ticks()
    assert [short(v) for v in (None, 0.0, 1234567.0, float("nan"))] == ["–", "0", "1.235e+06", "–"]


def test_markup_escapes_everything_that_is_not_markup() -> None:
    assert tag("b", "<i>", Markup("<u></u>"), None, title='"&') == (
        '<b title="&quot;&amp;">&lt;i&gt;<u></u></b>'
    )
    assert "<td>&lt;x&gt;</td>" in table(("a", "b"), [("1", "<x>")])


@needs_chromium
def test_a_browser_shows_every_figure_and_has_nothing_to_complain_of(tmp_path: Path) -> None:
    shown = show(made(full_board(HOSTILE, "precip", output=HOSTILE)), tmp_path)
    assert shown.console == []
    assert len(shown.figures) == 6  # scores, effects, groups, one profile, two references of drift
    assert all(width > 100 and height > 60 for width, height in shown.figures), shown.figures
    assert shown.width <= 1000, "no sideways scrolling"
    assert "<script>alert(1)</script>" in shown.text
    assert not {"script", "img"} & shown.counts.keys()
    assert shown.ground == "rgb(251, 251, 249)"
    assert show(made(full_board("x")), tmp_path, dark=True).ground == "rgb(20, 23, 29)"


@needs_chromium
def test_the_browser_would_complain(tmp_path: Path) -> None:
    document = made(full_board("x")).replace("<main>", '<main style="color:red"><script>1</script>')
    assert len(show(document, tmp_path).console) >= 2
