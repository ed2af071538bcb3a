"""The page from its chapters: one HTML document that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attributary.service.report.attributions import attribution_sections
from attributary.service.report.axes import short
from attributary.service.report.books import accounting_section
from attributary.service.report.collect import Chapter
from attributary.service.report.drifts import drift_sections
from attributary.service.report.markup import Markup, tag
from attributary.service.report.style import CSS, POLICY
from attributary.service.report.verdicts import window_words
from attributary.service.words import about, moment

_FEW = 1000  # rows; below, intervals are wide
_READING = (
    "The score is the co-movement ratio CIR: the share of a feature's movement about its centre "
    "that goes along with the output's. 1: always with it; 0: always against it; ½: no alignment. "
    "Strength is |2·CIR − 1|.",
    "Features are ranked by the lower end of their strength's 95 % interval, so a strong score on "
    "few rows does not come before a sure one. Where intervals overlap widely, the order means "
    "little.",
    "It measures association in the rows that were served, not cause: two features that move "
    "together both get the credit. Read correlated features as groups.",
    "The effect says by how much the output differs between high and low values of the feature; "
    "the dependence profile says where. A profile that rises and falls can have CIR near ½ and "
    "still matter: look at the mutual information too.",
    "PSI below 0.1 is usually called stable, above 0.25 large. On few rows chance alone gives "
    "large values, therefore the critical value: unchanged, independent rows exceed it in 5 % of "
    "windows. With hundreds of columns some exceed theirs every time.",
    "If inputs drift and the scores' ranking agrees (Kendall near 1), the model meets other rows "
    "but is moved by the same features. If the ranking changes, its reasons do.",
    "Accepted + rejected are all rows that were read. Gaps are offsets that nobody counted: above "
    "0, rows are missing.",
)


def page(model: str, chapters: Sequence[Chapter], *, made_at: int, top: int) -> str:
    """Return the document; ``made_at`` in milliseconds, ``top`` features in each figure."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"{model}: which features move it"),
        tag("style", Markup(CSS)),
    )
    body = tag(
        "body",
        tag("header",
            tag("h1", f"Which features move {model}"),
            tag("p", f"Made {moment(made_at)} UTC by attributary from the results topics.", class_="dim"),
            _contents(chapters)),
        tag("main", _chapters(chapters, made_at, top)),
        tag("section", tag("h2", "How to read it", id="reading"),
            (tag("p", words) for words in _READING)),
    )  # fmt: skip
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _contents(chapters: Sequence[Chapter]) -> Markup:
    links = [
        tag("a", chapter.attribution.output, href=f"#output-{number}")
        for number, chapter in enumerate(chapters)
    ]
    return tag("nav", links, tag("a", "How to read it", href="#reading"), aria_label="On this page")


def _chapters(chapters: Sequence[Chapter], made_at: int, top: int) -> Iterator[Markup]:
    for number, chapter in enumerate(chapters):
        message = chapter.attribution
        yield tag(
            "section",
            tag("h2", message.output, id=f"output-{number}"),
            _facts(chapter, made_at),
            _few(chapter),
            attribution_sections(message, top),
            drift_sections(chapter.drifts, top),
            accounting_section(message),
        )


def _facts(chapter: Chapter, made_at: int) -> Markup:
    message = chapter.attribution
    quartiles = message.output_quartiles
    state = "final" if message.final else "so far, not final"
    facts = [
        (f"{message.window.kind} window, {state}", window_words(message.window)),
        ("rows", f"{message.accounting.rows:,}"),
        ("quartiles of the output", " · ".join(map(short, quartiles)) if quartiles else "–"),
        ("watermark, UTC: no partition's newest row is older", _aged(chapter.watermark, made_at)),
        ("computed, UTC", _aged(message.computed_at, made_at)),
        ("gaps", f"{message.accounting.gaps:,}"),
    ]
    items = (tag("li", tag("b", value), tag("span", name)) for name, value in facts)
    return tag("ul", items, class_="facts")


def _aged(time: int | None, made_at: int) -> str:
    """Return an event time, and how long before the page was made it was."""
    if time is None:
        return "–"
    seconds = (made_at - time) / 1000
    side = "before" if seconds >= 0 else "after"
    return f"{moment(time)}, {about(abs(seconds))} {side} this page"


def _few(chapter: Chapter) -> Markup | None:
    """Return where more rows are to be seen than the few of the window."""
    rows = chapter.attribution.accounting.rows
    if rows >= _FEW or rows >= chapter.lifetime_rows:
        return None
    return tag(
        "p",
        f"Few rows: intervals are wide. `--window lifetime` shows all {chapter.lifetime_rows:,}.",
        class_="warn",
    )
