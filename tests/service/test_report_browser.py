"""The report in a real browser: on narrow, wide and dark screens, and on paper."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import needs_chromium, printed, show
from report_pages import HOSTILE, full_board, made


@needs_chromium
def test_a_browser_shows_every_figure_and_has_nothing_to_complain_of(tmp_path: Path) -> None:
    shown = show(made(full_board(HOSTILE, "precip", output=HOSTILE)), tmp_path)
    assert shown.console == []
    assert shown.counts["figure"] == 6  # scores, effects, groups, profiles, two references of drift
    assert all(width > 100 and height > 15 for width, height in shown.figures), shown.figures
    assert shown.width <= 1000, "no sideways scrolling"
    assert "<script>alert(1)</script>" in shown.text
    assert not {"script", "img"} & shown.counts.keys()
    assert shown.ground == "rgb(251, 251, 249)"
    assert show(made(full_board("x")), tmp_path, dark=True).ground == "rgb(20, 23, 29)"


@needs_chromium
@pytest.mark.parametrize("width", [400, 1280])
def test_letters_and_numbers_can_be_read_on_narrow_and_wide_pages(
    tmp_path: Path, width: int
) -> None:
    document = made(full_board("W" * 200, "列" * 200, "i" * 200, HOSTILE, output="y" * 200))
    shown = show(document, tmp_path, width=width)
    assert shown.width <= width, "no sideways scrolling"
    assert shown.smallest >= 10.0
    assert shown.cut == []
    plots = max(w for w, _ in shown.figures)
    assert plots > 0.55 * width, "figures take the width that there is"


@needs_chromium
def test_on_paper_the_tables_are_there(tmp_path: Path) -> None:
    document = made(full_board(*(f"feature {number}" for number in range(200))))
    opened = document.replace("<details>", "<details open>")
    assert opened != document
    sheets = printed(document, tmp_path)
    assert sheets == printed(opened, tmp_path)
    closed = document.replace("content-visibility: visible", "content-visibility: hidden")
    closed = closed.replace('http-equiv="Content-Security-Policy"', 'name="none"')
    assert sheets > printed(closed, tmp_path) + 1, "200 rows and more fill some sheets"


@needs_chromium
def test_the_browser_would_complain(tmp_path: Path) -> None:
    document = made(full_board("x")).replace("<main>", '<main style="color:red"><script>1</script>')
    assert len(show(document, tmp_path).console) >= 2
