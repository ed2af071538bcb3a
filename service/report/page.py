"""The page from its chapters: one HTML document that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attributary.service.report.attributions import attribution_sections
from attributary.service.report.axes import short
from attributary.service.report.books import accounting_section
from attributary.service.report.collect import Chapter
from attributary.service.report.drifts import drift_sections
from attributary.service.report.markup import Markup, join, tag
from attributary.service.report.style import CSS, POLICY
from attributary.service.words import describe_window, moment

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
        tag("main", _chapters(chapters, top)),
        tag("section", tag("h2", "How to read it", id="reading"),
            (tag("p", words) for words in _READING)),
    )  # fmt: skip
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _contents(chapters: Sequence[Chapter]) -> Markup:
    links = [
        tag("a", chapter.attribution.output, href=f"#output-{number}")
        for number, chapter in enumerate(chapters)
    ]
    return tag("nav", links, tag("a", "How to read it", href="#reading"))


def _chapters(chapters: Sequence[Chapter], top: int) -> Iterator[Markup]:
    for number, chapter in enumerate(chapters):
        message = chapter.attribution
        yield tag(
            "section",
            tag("h2", message.output, id=f"output-{number}"),
            _facts(chapter),
            attribution_sections(message, top),
            drift_sections(chapter.drifts, top),
            accounting_section(message),
        )


def _facts(chapter: Chapter) -> Markup:
    message = chapter.attribution
    quartiles = message.output_quartiles
    state = "final" if message.final else "so far, not final"
    facts = [
        (f"{message.window.kind} window, {state}", describe_window(message.window)),
        ("rows", f"{message.accounting.rows:,}"),
        ("quartiles of the output", " · ".join(map(short, quartiles)) if quartiles else "–"),
        ("computed (UTC)", moment(message.computed_at)),
        ("gaps", f"{message.accounting.gaps:,}"),
    ]
    items = (tag("li", tag("b", value), tag("span", name)) for name, value in facts)
    return join(tag("ul", items, class_="facts"))
