"""The page of attributions: what leads now comes first, then how it came to that."""

from __future__ import annotations

from builder import Band, Column, Dashboard, Panel, Query, Row, Variable
from queries import MODEL, ONE, OUTPUT, WINDOW, age, alerts, most, newest, stat

_FEATURE = Variable("feature", "Feature", f"attributary_score_ratio{{{ONE}}}", "feature")
_CHOSEN = ONE + ',feature="$feature"'
_OUTPUTS = 'model="$model",window="$window"'
_MODEL = 'model="$model"'
_COLOURS = ("blue", "orange", "green", "purple", "red")
_WAYS = ((1, "rises", "green"), (0, "neither", "text"), (-1, "falls", "orange"))
_NO_WINDOW = "no window published yet"
_NO_RUN = "no scheduled run"
_SCORES = "concepts.md#the-score"
_RUNS = "ondemand.md#unique-information-by-schedule"
_NATS = "suffix: nats"


def _leading(metric: str, first: int) -> str:
    """Return a metric of the features that lead at the end of the shown time."""
    ranks = newest("rank", ONE, "feature")
    return f"{most(metric, ONE, 'feature')} and on (feature) ({ranks} <= {first})"


def _at_rank(metric: str, rank: int) -> str:
    ranks = newest("rank", ONE, "feature")
    return f"{most(metric, ONE, 'feature')} and on (feature) ({ranks} == {rank})"


def _of_outputs(first: int) -> str:
    """Return the strength of the features that lead an output at the end of the shown time."""
    by = ("output", "feature")
    strength, ranks = (
        most("strength_low_ratio", _OUTPUTS, *by),
        newest("rank", _OUTPUTS, *by),
    )
    return f"{strength} and on (output, feature) ({ranks} <= {first})"


def _of_run(metric: str) -> str:
    """Return a metric of the twenty features that lead in the newest scheduled run."""
    leading = f"bottomk(20, {newest('unique_rank', _MODEL, 'feature')})"
    return f"{most(metric, _MODEL, 'feature')} and on (feature) {leading}"


def _with_band(rank: int) -> tuple[Query, ...]:
    return (
        Query(_at_rank("score_low_ratio", rank), f"{rank}, lower"),
        Query(_at_rank("score_high_ratio", rank), f"{rank}, upper"),
        Query(_at_rank("score_ratio", rank), f"{rank}: {{{{feature}}}}"),
    )


_NOW = (
    stat(
        "Rows of the window",
        "How many rows the scores rest on.",
        most("window_rows", ONE, "output"),
        "short",
        "concepts.md#windows",
        empty=_NO_WINDOW,
    ),
    stat(
        "Age of the window",
        "Time since the newest published window ended, in event time: rows of the past are old.",
        age("window_end_timestamp_seconds", ONE, "output"),
        "s",
        "concepts.md#windows",
        empty=_NO_WINDOW,
    ),
    alerts(',model="$model"'),
    stat(
        "Left out of sketches",
        "Share of the window's rows that the lightweight mode left out; 0 while it is off.",
        most("window_thinned_ratio", ONE, "output"),
        "percentunit",
        "architecture.md#lightweight-mode",
        empty=_NO_WINDOW,
    ),
    stat(
        "Features not shown",
        "Features below the budget of series. Their scores are on the attributions topic.",
        most("features_not_exported", ONE, "output"),
        "none",
        "deploy.md#metrics-dashboards-alerts",
        empty=_NO_WINDOW,
    ),
    Panel(
        "Groups and outputs not shown",
        "Groups of this output, and outputs by window of the model, below the budget of series. Their scores "
        "are on the attributions topic.",
        (
            Query(most("groups_not_exported", ONE, "output"), "groups"),
            Query(f"{most('outputs_not_exported', _MODEL, 'model')} or vector(0)", "outputs"),
        ),
        "none",
        "deploy.md#metrics-dashboards-alerts",
        empty=_NO_WINDOW,
        kind="stat",
        width=4,
        height=4,
    ),
    Panel(
        "Leading features now",
        "The newest window, by rank. Score: how often feature and output move together, beside its 95 % "
        "interval; 50 % is no alignment. Strength: lower end of the interval of |2·score − 1|, by which "
        "features are ranked. Effect: mean output in the feature's upper quartile minus that in its lower.",
        (
            Query(_leading("rank", 20), "Rank"),
            Query(_leading("strength_low_ratio", 20), "Strength"),
            Query(_leading("score_low_ratio", 20), "Lower"),
            Query(_leading("score_ratio", 20), "Score"),
            Query(_leading("score_high_ratio", 20), "Upper"),
            Query(_leading("direction", 20), "Output"),
            Query(_leading("effect", 20), "Effect"),
            Query(_leading("missing_ratio", 20), "Missing"),
        ),
        "short",
        _SCORES,
        empty=_NO_WINDOW,
        kind="table",
        height=10,
        columns=(
            Column("Strength", "percentunit", bar=True),
            *(Column(title, "percentunit") for title in ("Lower", "Score", "Upper", "Missing")),
            Column("Output", "none", names=_WAYS),
        ),
        first="Rank",
    ),
    Panel(
        "Scores of the five that lead now",
        "Co-movement ratio with its 95 % interval. Above 50 % the output rises with the feature, below it "
        "falls. Bands that do not overlap are features that differ.",
        tuple(query for rank in range(1, 6) for query in _with_band(rank)),
        "percentunit",
        "concepts.md#how-sure",
        empty=_NO_WINDOW,
        height=10,
        bands=tuple(Band(3 * k, 3 * k + 1, 3 * k + 2, c) for k, c in enumerate(_COLOURS)),
        maximum=1,
    ),
)

_OVER_TIME = (
    Panel(
        "Strength of the ten that lead now",
        "Lower end of the 95 % interval of |2·score − 1|: 0 no alignment, 1 always together. Features are "
        "ranked by it, so that one that is seen seldom does not lead by chance.",
        (Query(_leading("strength_low_ratio", 10), "{{feature}}"),),
        "percentunit",
        _SCORES,
        empty=_NO_WINDOW,
    ),
    Panel(
        "Ranks of the ten that lead now",
        "Rank 1 moves the output most surely. Lines that cross are features that change places.",
        (Query(_leading("rank", 10), "{{feature}}"),),
        "none",
        _SCORES,
        empty=_NO_WINDOW,
    ),
    Panel(
        "Directions of the ten that lead now",
        "Whether the output rises or falls with the feature, or neither within chance.",
        (Query(_leading("direction", 10), "{{feature}}"),),
        "none",
        _SCORES,
        empty=_NO_WINDOW,
        kind="state-timeline",
        names=_WAYS,
    ),
    Panel(
        "Effects of the ten that lead now, in output units",
        "Mean output in the feature's upper quartile minus that in its lower quartile.",
        (Query(_leading("effect", 10), "{{feature}}"),),
        "short",
        _SCORES,
        empty=_NO_WINDOW,
    ),
    Panel(
        "Groups",
        "Score of each group of features taken as one (BlockCIR).",
        (Query(most("group_score_ratio", ONE, "group"), "{{group}}"),),
        "percentunit",
        "baseline.md#groups",
        empty="the model's card has no groups",
        maximum=1,
    ),
    Panel(
        "Leading feature of every output",
        "Strength of the feature that leads each output now, over time: classes that listen to different "
        "inputs.",
        (
            Query(
                _of_outputs(1),
                "{{output}}: {{feature}}",
            ),
        ),
        "percentunit",
        _SCORES,
        empty=_NO_WINDOW,
    ),
    Row(
        "The feature $feature",
        (
            Panel(
                "Score of $feature",
                "Co-movement ratio with its 95 % interval.",
                (
                    Query(most("score_low_ratio", _CHOSEN, "feature"), "lower"),
                    Query(most("score_high_ratio", _CHOSEN, "feature"), "upper"),
                    Query(most("score_ratio", _CHOSEN, "feature"), "score"),
                ),
                "percentunit",
                "concepts.md#how-sure",
                empty="this feature has no series",
                bands=(Band(0, 1, 2, "blue"),),
                maximum=1,
            ),
            Panel(
                "$feature, by output",
                "Its strength for every output of the model.",
                (
                    Query(
                        most("strength_low_ratio", f'{_OUTPUTS},feature="$feature"', "output"),
                        "{{output}}",
                    ),
                ),
                "percentunit",
                _SCORES,
                empty="this feature has no series",
            ),
        ),
    ),
    Row(
        "Every output",
        (
            Panel(
                "Three leading features of every output now",
                "The newest window of each output, by rank.",
                (Query(_of_outputs(3), "{{output}}: {{feature}}"),),
                "percentunit",
                _SCORES,
                empty=_NO_WINDOW,
                kind="bargauge",
                width=24,
                maximum=1,
            ),
        ),
    ),
    Row(
        "Unique information, by schedule",
        (
            Panel(
                "Unique information now",
                "MCIR-M of the newest scheduled run (unique_information of the card): the share of what a "
                "feature and those like it say of the output that is its own, with the 95 % interval; the "
                "information itself, in nats; and how many flags make the score doubtful.",
                (
                    Query(_of_run("unique_rank"), "Rank"),
                    Query(_of_run("unique_score_low_ratio"), "Lower"),
                    Query(_of_run("unique_score_ratio"), "Score"),
                    Query(_of_run("unique_score_high_ratio"), "Upper"),
                    Query(_of_run("unique_information_nats"), "Its own"),
                    Query(_of_run("unique_joint_nats"), "With its like"),
                    Query(_of_run("unique_flags"), "Flags"),
                ),
                "none",
                _RUNS,
                empty=_NO_RUN,
                kind="table",
                width=16,
                columns=(
                    *(Column(title, "percentunit") for title in ("Lower", "Score", "Upper")),
                    *(Column(title, _NATS) for title in ("Its own", "With its like")),
                ),
                first="Rank",
            ),
            Panel(
                "Information of features alone",
                "Also of features that no other stands in for as well: these have no score and no rank.",
                (
                    Query(
                        f"topk(20, {most('unique_marginal_nats', _MODEL, 'feature')})",
                        "{{feature}}",
                    ),
                ),
                _NATS,
                _RUNS,
                empty=_NO_RUN,
                kind="bargauge",
                width=8,
            ),
            Panel(
                "Change of dependence",
                "Largest change of a correlation between features, beyond chance, since the neighbourhoods "
                "of the scheduled runs were found. They are found anew above the card's reuse_below.",
                (Query(most("unique_dependence_change_ratio", _MODEL, "model"), "change"),),
                "percentunit",
                "explainers.md#mcir-m",
                empty=_NO_RUN,
                width=8,
            ),
            Panel(
                "Agreement of resamples",
                "Kendall's tau of the rankings of resamples: 1 is the same order.",
                (Query(most("unique_kendall_ratio", _MODEL, "model"), "Kendall's tau"),),
                "none",
                "explainers.md#mcir-m",
                empty=_NO_RUN,
                width=8,
            ),
            Panel(
                "Time of a run",
                "How long the newest scheduled run took.",
                (Query(most("unique_seconds", _MODEL, "model"), "time"),),
                "s",
                _RUNS,
                empty=_NO_RUN,
                width=8,
            ),
            stat(
                "Age of the run",
                "Time since the newest one was computed.",
                age("unique_timestamp_seconds", _MODEL, "model"),
                "s",
                _RUNS,
                empty=_NO_RUN,
                width=6,
            ),
            stat(
                "Rows of the run",
                "How many rows the scores rest on.",
                most("unique_rows", _MODEL, "model"),
                "short",
                _RUNS,
                empty=_NO_RUN,
                width=6,
            ),
            stat(
                "Neighbourhoods",
                "Whether those of an earlier run were kept.",
                most("unique_neighbourhoods_reused", _MODEL, "model"),
                "none",
                "explainers.md#mcir-m",
                empty=_NO_RUN,
                width=6,
                names=((1, "kept", "text"), (0, "found anew", "text")),
            ),
            stat(
                "Features of the run not shown",
                "Features below the budget of series.",
                most("unique_features_not_exported", _MODEL, "model"),
                "none",
                "deploy.md#metrics-dashboards-alerts",
                empty=_NO_RUN,
                width=6,
            ),
        ),
    ),
)

ATTRIBUTIONS = Dashboard(
    uid="attributary-attributions",
    title="Attributary / Attributions",
    description="Which features move the output, how surely, and in which direction.",
    variables=(MODEL, OUTPUT, WINDOW, _FEATURE),
    panels=(*_NOW, *_OVER_TIME),
)
