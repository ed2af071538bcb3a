"""The page's sections on one window: scores, effects, groups and dependence profiles."""

from __future__ import annotations

from collections.abc import Sequence

from attributary.schemas.attribution import FeatureScore, WindowAttribution
from attributary.service.cells import ranked, way
from attributary.service.report.axes import short
from attributary.service.report.figures import effect_marks, interval_figure, score_marks
from attributary.service.report.markup import Markup, Part, join, table, tag
from attributary.service.report.profiles import profile_figures

_WAYS = {1: "▲ with", -1: "▼ against", 0: "· not sure"}


def attribution_sections(message: WindowAttribution, top: int) -> Markup:
    """Return the sections about the scores of one output's window, ``top`` features each."""
    scores = ranked(message.features)
    if not scores:
        return tag("p", "This window has no scores.", class_="dim")
    shown = scores[:top]
    return join(
        tag("h3", "Attributions: which features the output moves with"),
        _caption(len(shown), len(scores)),
        interval_figure(
            score_marks(shown), f"Scores of {message.output} with 95 % intervals",
            axis=(0.0, 1.0), neutral=0.5),
        _all_scores("All features in numbers", f"Scores of {message.output}", scores),
        _effects(shown, message.output),
        _groups(message),
        _profiles(scores, top),
    )  # fmt: skip


def _caption(shown: int, total: int) -> Markup:
    which = f"The first {shown} of {total} features" if total > shown else f"All {total} features"
    words = (
        f"{which}, by the lower end of their strength. The point is the co-movement ratio CIR, the line "
        "its 95 % interval: right of ½ (▲) the feature moves with the output, left of it (▼) against it; "
        "where the interval includes ½ (·, grey) that is not sure."
    )
    return tag("p", words, class_="dim")


def _all_scores(summary: str, caption: str, scores: Sequence[FeatureScore]) -> Markup:
    titles = (
        "feature", "rank", "CIR", "95 % interval", "std. error", "strength ≥", "moves", "effect",
        "effective rows", "missing", "mutual information",
    )  # fmt: skip
    return tag(
        "details",
        tag("summary", summary),
        table(caption, titles, map(_score_row, scores)),
    )


def _score_row(score: FeatureScore) -> list[Part]:
    low, high = score.interval
    effect = next((mark.label for mark in effect_marks([score])), "–")
    return [
        score.name, str(score.rank), f"{score.score:.4f}", f"{low:.4f} to {high:.4f}",
        short(score.stderr), f"{score.strength_low:.3f}", _WAYS[way(score)], effect,
        f"{score.effective_rows:,.0f}", "–" if score.missing is None else f"{score.missing:.2%}",
        short(score.mutual_information),
    ]  # fmt: skip


def _effects(scores: Sequence[FeatureScore], output: str) -> Markup | None:
    marks = effect_marks(scores)
    if not marks:
        return None
    return join(
        tag("h3", "Effects: by how much"),
        tag("p", "Mean output in the feature's upper quarter minus that in its lower quarter, in the "
            "output's units, with 95 % limits. A hollow point has no limits: its error is unknown.",
            class_="dim"),
        interval_figure(marks, f"Effects on {output}", axis=None, neutral=0.0),
    )  # fmt: skip


def _groups(message: WindowAttribution) -> Markup | None:
    groups = ranked(message.groups)
    if not groups:
        return None
    return join(
        tag("h3", "Groups of features, together"),
        interval_figure(
            score_marks(groups), f"Scores of the groups for {message.output}",
            axis=(0.0, 1.0), neutral=0.5),
        _all_scores("All groups in numbers", f"Scores of groups for {message.output}", groups),
    )  # fmt: skip


def _profiles(scores: Sequence[FeatureScore], top: int) -> Markup | None:
    figures = profile_figures(scores, top)
    if not figures:
        return None
    return join(
        tag("h3", "Dependence profiles"),
        tag("p", f"The first {len(figures)} features that take two values or more: the mean output where the "
            "feature lies in each of its cells, with 95 % limits, all to one scale. Cells of numbers hold "
            "about equally many rows each, as far as values differ; the labels below are values between "
            "them. A hollow point's error is unknown; the line leaves it out, as it does cells without rows.",
            class_="dim"),
        tag("figure", figures, class_="profiles"),
    )  # fmt: skip
