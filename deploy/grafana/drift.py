"""The page of drift: what has changed most comes first. Dashed lines are where alerts begin."""

from __future__ import annotations

from builder import Column, Dashboard, Panel, Query, Row, Variable
from queries import MODEL, ONE, OUTPUT, REFERENCE, WINDOW, age, alerts, most, newest, stat

_DRIFT = 'model="$model",window="$window",reference="$reference"'
_OUTPUT_DRIFT = _DRIFT + ',output="$output"'
_CHOSEN = _DRIFT + ',feature="$feature"'
_FEATURE = Variable("feature", "Feature", f"attributary_psi_ratio{{{_DRIFT}}}", "feature")
_PSI, _SHIFT = 0.25, 0.1
_NONE = "no window compared yet"
_DOC = "concepts.md#drift"


def _above_chance(metric: str, labels: str, *by: str) -> str:
    return (
        f"{most(f'{metric}_ratio', labels, *by)} / "
        f"({most(f'{metric}_critical_ratio', labels, *by)} > 0)"
    )


def _changed_most(expression: str, count: int) -> str:
    """Return an expression of the features with the largest index at the end of the shown time."""
    leading = f"topk({count}, {newest('psi_ratio', _DRIFT, 'feature')})"
    return f"{expression} and on (feature) {leading}"


def _feature(metric: str) -> str:
    return most(metric, _DRIFT, "feature")


def _output(metric: str) -> str:
    return most(metric, _OUTPUT_DRIFT, "output")


_NOW = (
    stat(
        "Rows of the window",
        "Few rows make noisy distances.",
        _output("drift_rows"),
        "short",
        _DOC,
        empty=_NONE,
    ),
    stat(
        "Rows of the reference",
        "What the window is compared with.",
        _output("drift_reference_rows"),
        "short",
        _DOC,
        empty=_NONE,
    ),
    stat(
        "Age of the comparison",
        "Time since drift was last computed.",
        age("drift_timestamp_seconds", _OUTPUT_DRIFT, "output"),
        "s",
        _DOC,
        empty=_NONE,
    ),
    alerts(',model="$model"'),
    stat(
        "Features not shown",
        "Features below the budget of series. Their drift is on the drift topic.",
        most("drift_features_not_exported", _DRIFT, "model"),
        "none",
        "deploy.md#metrics-dashboards-alerts",
        empty=_NONE,
    ),
    stat(
        "Features above chance",
        "Features whose index is above what 5 % of windows exceed although nothing changed: one in twenty "
        "is there by chance.",
        f"count({_above_chance('psi', _DRIFT, 'feature')} > 1) or vector(0)",
        "none",
        _DOC,
    ),
    Panel(
        "Features that have changed most",
        "PSI: population-stability index; by custom .1 is small, .25 is large. Critical: what 5 % of windows "
        "exceed although nothing changed. KS: the largest difference of the distributions. Missing: change "
        "of the share of rows without a finite value.",
        (
            Query(_changed_most(_feature("psi_ratio"), 20), "PSI"),
            Query(_changed_most(_feature("psi_critical_ratio"), 20), "Critical PSI"),
            Query(_changed_most(_feature("ks_ratio"), 20), "KS"),
            Query(_changed_most(_feature("ks_critical_ratio"), 20), "Critical KS"),
            Query(_changed_most(_feature("missing_change_ratio"), 20), "Missing"),
        ),
        "none",
        _DOC,
        empty=_NONE,
        kind="table",
        columns=tuple(Column(title, "percentunit") for title in ("KS", "Critical KS", "Missing")),
        first="-PSI",
    ),
    Panel(
        "Output",
        "Kolmogorov-Smirnov distance of the output from the reference, and what chance exceeds in 5 %. An "
        "alert needs both: above chance, and above the dashed line.",
        (
            Query(_output("output_ks_ratio"), "distance"),
            Query(_output("output_ks_critical_ratio"), "critical"),
        ),
        "percentunit",
        "runbooks.md#attributaryoutputdrift",
        empty=_NONE,
        limits=((_SHIFT, "red"),),
    ),
)

_OVER_TIME = (
    Panel(
        "Attributions",
        "Least that the surest change of a score is, in 2·CIR - 1: 0 within chance. Alerts begin at the "
        "dashed line.",
        (
            Query(
                most("attribution_change_low_ratio", ONE, "reference"),
                "against {{reference}}",
            ),
        ),
        "none",
        "runbooks.md#attributaryattributiondrift",
        empty=_NONE,
        limits=((_SHIFT, "red"),),
    ),
    Panel(
        "Order of the attributions",
        "Kendall's tau of all scores: 1 the same order, 0 no relation. Features without effect change places "
        "by chance.",
        (Query(most("attribution_kendall_ratio", ONE, "reference"), "against {{reference}}"),),
        "none",
        _DOC,
        empty=_NONE,
    ),
    Panel(
        "Inputs: PSI above chance",
        "Population-stability index divided by the value that 5 % of windows exceed although nothing "
        "changed, of the ten features with the largest index now.",
        (
            Query(
                _changed_most(_above_chance("psi", _DRIFT, "feature"), 10),
                "{{feature}}",
            ),
        ),
        "none",
        _DOC,
        empty=_NONE,
        limits=((1, "orange"),),
    ),
    Panel(
        "Inputs: PSI",
        "Population-stability index over the grid's cells. Alerts begin at the dashed line, where the index "
        "is above chance too.",
        (Query(_changed_most(_feature("psi_ratio"), 10), "{{feature}}"),),
        "none",
        "runbooks.md#attributaryinputdrift",
        empty=_NONE,
        limits=((_PSI, "red"),),
    ),
    Panel(
        "Inputs: Kolmogorov-Smirnov distance",
        "The largest difference of the distributions, and what chance alone exceeds in 5 % of windows.",
        (
            Query(_changed_most(_feature("ks_ratio"), 10), "{{feature}}"),
            Query(most("ks_critical_ratio", _DRIFT, "model"), "critical"),
        ),
        "percentunit",
        _DOC,
        empty=_NONE,
    ),
    Panel(
        "Output: PSI",
        "Population-stability index of the output over the grid's cells.",
        (Query(_output("output_psi_ratio"), "index"),),
        "none",
        "runbooks.md#attributaryoutputdrift",
        empty=_NONE,
    ),
    Panel(
        "Missing values",
        "Share of rows without a finite value, of the ten features with most now.",
        (
            Query(
                f"{most('missing_ratio', ONE, 'feature')} and on (feature) "
                f"topk(10, {newest('missing_ratio', ONE, 'feature')})",
                "{{feature}}",
            ),
        ),
        "percentunit",
        _DOC,
        empty=_NONE,
    ),
    Panel(
        "Change of missing rates",
        "Missing rate minus the reference's, of the ten features where it differs most now.",
        (
            Query(
                f"{_feature('missing_change_ratio')} and on (feature) "
                f"topk(10, abs({newest('missing_change_ratio', _DRIFT, 'feature')}))",
                "{{feature}}",
            ),
        ),
        "percentunit",
        _DOC,
        empty=_NONE,
    ),
    Row(
        "The feature $feature",
        (
            Panel(
                "PSI of $feature",
                "Beside what 5 % of windows exceed although nothing changed.",
                (
                    Query(most("psi_ratio", _CHOSEN, "feature"), "index"),
                    Query(most("psi_critical_ratio", _CHOSEN, "feature"), "critical"),
                ),
                "none",
                "runbooks.md#attributaryinputdrift",
                empty="this feature has no series",
                limits=((_PSI, "red"),),
                width=8,
            ),
            Panel(
                "Kolmogorov-Smirnov distance of $feature",
                "Beside what 5 % of windows exceed although nothing changed.",
                (
                    Query(most("ks_ratio", _CHOSEN, "feature"), "distance"),
                    Query(most("ks_critical_ratio", _CHOSEN, "feature"), "critical"),
                ),
                "percentunit",
                _DOC,
                empty="this feature has no series",
                width=8,
            ),
            Panel(
                "Missing values of $feature",
                "Share of rows without a finite value, and how far that is from the reference's.",
                (
                    Query(most("missing_ratio", ONE + ',feature="$feature"', "feature"), "missing"),
                    Query(most("missing_change_ratio", _CHOSEN, "feature"), "change"),
                ),
                "percentunit",
                _DOC,
                empty="this feature has no series",
                width=8,
            ),
        ),
    ),
)

DRIFT = Dashboard(
    uid="attributary-drift",
    title="Attributary / Drift",
    description="What has changed: inputs, outputs, attributions, missing values.",
    variables=(MODEL, OUTPUT, WINDOW, REFERENCE, _FEATURE),
    panels=(*_NOW, *_OVER_TIME),
)
