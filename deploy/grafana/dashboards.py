"""The four dashboards."""

from __future__ import annotations

from builder import Dashboard, Panel, Query, Variable

_MODEL = Variable("model", "Model", "attributary_windows_published_total", "model")
_OUTPUT = Variable("output", "Output", 'attributary_window_rows{model="$model"}', "output")
_WINDOW = Variable("window", "Window", 'attributary_window_rows{model="$model"}', "window")
_FEATURE = Variable(
    "feature",
    "Feature",
    'attributary_score_ratio{model="$model",output="$output",window="$window"}',
    "feature",
    several=True,
)
_REFERENCE = Variable(
    "reference", "Reference", 'attributary_drift_rows{model="$model"}', "reference"
)

_ONE = 'model="$model",output="$output",window="$window"'
_FEATURES = _ONE + ',feature=~"$feature"'
_DRIFT = 'model="$model",window="$window",reference="$reference"'
_OUTPUT_DRIFT = _DRIFT + ',output="$output"'
_UNIQUE = 'attributary_unique_{}_ratio{{model="$model"}}'
_UNIQUE_TOP = f"topk(10, {_UNIQUE.format('score')})"
_MARGINAL = 'attributary_unique_marginal_nats{model="$model"}'


def _score(bound: str) -> str:
    return (
        f"attributary_score_ratio{{{_FEATURES}}} {bound} 1.96 * "
        f"attributary_score_stderr_ratio{{{_FEATURES}}}"
    )


def _quantile(q: float, metric: str, *by: str) -> str:
    labels = ", ".join(["le", *by])
    rate = f"rate(attributary_{metric}_bucket[$__rate_interval])"
    return f"histogram_quantile({q:g}, sum by ({labels}) ({rate}))"


ATTRIBUTIONS = Dashboard(
    uid="attributary-attributions",
    title="Attributary / Attributions",
    description="Which features move the output, how surely, and in which direction.",
    variables=(_MODEL, _OUTPUT, _WINDOW, _FEATURE),
    panels=(
        Panel(
            "Strength of the ten leading features",
            "Lower end of the 95 % interval of |2·CIR − 1|: 0 no alignment, 1 always together. Features are "
            "ranked by it, so that one that is seen seldom does not lead by chance.",
            (Query(f"topk(10, attributary_strength_low_ratio{{{_ONE}}})", "{{feature}}"),),
            "percentunit",
            width=16,
        ),
        Panel(
            "Leading features now",
            "The same, of the newest window.",
            (Query(f"topk(20, attributary_strength_low_ratio{{{_ONE}}})", "{{feature}}"),),
            "percentunit",
            kind="bargauge",
            width=8,
            maximum=1,
        ),
        Panel(
            "Score of $feature",
            "Co-movement ratio with its 95 % band. Above 50 % the output rises with the feature, below it "
            "falls.",
            (
                Query(_score("-"), "lower"),
                Query(_score("+"), "upper"),
                Query(f"attributary_score_ratio{{{_FEATURES}}}", "score"),
            ),
            "percentunit",
            width=8,
            band=("lower", "upper"),
            repeat="feature",
            maximum=1,
        ),
        Panel(
            "Ranks over time",
            "Rank 1 moves the output most surely. Lines that cross are features that change places.",
            (Query(f"attributary_rank{{{_ONE}}} <= 10", "{{feature}}"),),
            "none",
        ),
        Panel(
            "Effect in output units",
            "Mean output in the feature's upper quartile minus that in its lower quartile.",
            (Query(f"attributary_effect{{{_FEATURES}}}", "{{feature}}"),),
            "short",
        ),
        Panel(
            "Directions",
            "1: the output rises with the feature. -1: it falls. 0: neither.",
            (Query(f"attributary_direction{{{_FEATURES}}}", "{{feature}}"),),
            "none",
        ),
        Panel(
            "Groups",
            "Score of each group of features taken as one (BlockCIR).",
            (Query(f"attributary_group_score_ratio{{{_ONE}}}", "{{group}}"),),
            "percentunit",
            maximum=1,
        ),
        Panel(
            "Leading feature of every output",
            "The strength of the strongest features of each output: classes that listen to different inputs.",
            (
                Query(
                    'topk by (output) (3, attributary_strength_low_ratio{model="$model",window="$window"})',
                    "{{output}}: {{feature}}",
                ),
            ),
            "percentunit",
            kind="bargauge",
            maximum=1,
        ),
        Panel(
            "Rows of the window",
            "How many rows the scores rest on.",
            (Query(f"attributary_window_rows{{{_ONE}}}", "rows"),),
            "short",
            kind="stat",
            width=4,
            height=4,
        ),
        Panel(
            "Age of the window",
            "Time since the newest published window ended, in event time.",
            (
                Query(
                    f"time() - attributary_window_end_timestamp_seconds{{{_ONE}}}",
                    "age",
                ),
            ),
            "s",
            kind="stat",
            width=4,
            height=4,
        ),
        Panel(
            "Features not shown",
            "Features below the budget of series. Their scores are on the attributions topic.",
            (Query(f"attributary_features_not_exported{{{_ONE}}}", "features"),),
            "short",
            kind="stat",
            width=4,
            height=4,
        ),
        Panel(
            "Unique information",
            "MCIR-M of the newest scheduled run (unique_information of the card): the share of what a "
            "feature and those like it say of the output that is its own, with the 95 % interval. Empty "
            "without a schedule.",
            (
                Query(_UNIQUE_TOP, "{{feature}}"),
                Query(
                    f"{_UNIQUE.format('score_low')} and on (feature) {_UNIQUE_TOP}",
                    "{{feature}}, lower",
                ),
                Query(
                    f"{_UNIQUE.format('score_high')} and on (feature) {_UNIQUE_TOP}",
                    "{{feature}}, upper",
                ),
            ),
            "percentunit",
            kind="bargauge",
            maximum=1,
        ),
        Panel(
            "Information of features alone",
            "Nats, of features that no other stands in for as well: these have no score and no rank.",
            (Query(f"topk(20, {_MARGINAL})", "{{feature}}"),),
            "short",
            kind="bargauge",
        ),
        Panel(
            "Change of dependence",
            "Largest change of a correlation between features, beyond chance, since the neighbourhoods of "
            "the scheduled runs were found. They are found anew above the card's reuse_below.",
            (
                Query('attributary_unique_dependence_change_ratio{model="$model"}', "change"),
                Query('attributary_unique_neighbourhoods_reused{model="$model"}', "kept"),
            ),
            "short",
            width=8,
        ),
        Panel(
            "Scheduled run",
            "Time that the newest scheduled run took, and the agreement of resamples on its ranking.",
            (
                Query('attributary_unique_seconds{model="$model"}', "seconds"),
                Query('attributary_unique_kendall_ratio{model="$model"}', "Kendall's tau"),
            ),
            "short",
            width=8,
        ),
        Panel(
            "Age of the scheduled run",
            "Time since the newest one was computed.",
            (Query('time() - attributary_unique_timestamp_seconds{model="$model"}', "age"),),
            "s",
            kind="stat",
            width=8,
        ),
    ),
)

DRIFT = Dashboard(
    uid="attributary-drift",
    title="Attributary / Drift",
    description="What has changed: inputs, outputs, attributions, missing values.",
    variables=(_MODEL, _OUTPUT, _WINDOW, _REFERENCE, _FEATURE),
    panels=(
        Panel(
            "Inputs: PSI above chance",
            "Population-stability index divided by the value that 5 % of windows exceed although nothing "
            "changed. Above 1 is more than chance.",
            (
                Query(
                    f"topk(10, attributary_psi_ratio{{{_DRIFT}}} "
                    f"/ attributary_psi_critical_ratio{{{_DRIFT}}})",
                    "{{feature}}",
                ),
            ),
            "short",
        ),
        Panel(
            "Inputs: PSI",
            "Population-stability index over the grid's cells. By custom .1 is small, .25 is large.",
            (Query(f"topk(10, attributary_psi_ratio{{{_DRIFT}}})", "{{feature}}"),),
            "short",
        ),
        Panel(
            "Inputs: Kolmogorov-Smirnov distance",
            "The largest difference of the distributions, and what chance alone exceeds in 5 % of windows.",
            (
                Query(f"topk(10, attributary_ks_ratio{{{_DRIFT}}})", "{{feature}}"),
                Query(f"max(attributary_ks_critical_ratio{{{_DRIFT}}})", "critical"),
            ),
            "percentunit",
        ),
        Panel(
            "Missing values",
            "Share of rows without a finite value, of the features with most.",
            (Query(f"topk(10, attributary_missing_ratio{{{_ONE}}})", "{{feature}}"),),
            "percentunit",
        ),
        Panel(
            "Change of missing rates",
            "Missing rate minus the reference's.",
            (Query(f"attributary_missing_change_ratio{{{_DRIFT}}}", "{{feature}}"),),
            "percentunit",
        ),
        Panel(
            "Output",
            "Kolmogorov-Smirnov distance of the output from the reference, and what chance exceeds in 5 %.",
            (
                Query(f"attributary_output_ks_ratio{{{_OUTPUT_DRIFT}}}", "distance"),
                Query(f"attributary_output_ks_critical_ratio{{{_OUTPUT_DRIFT}}}", "critical"),
            ),
            "percentunit",
        ),
        Panel(
            "Attributions",
            "Least that the surest change of a score is, in 2·CIR - 1 (alert: above 0.1), and Kendall's tau "
            "of all: 1 the same order, 0 no relation; features without effect change places by chance.",
            (
                Query(
                    'attributary_attribution_change_low_ratio{model="$model",window="$window",output="$output"}',
                    "change against {{reference}}",
                ),
                Query(
                    'attributary_attribution_kendall_ratio{model="$model",window="$window",output="$output"}',
                    "tau against {{reference}}",
                ),
            ),
            "short",
        ),
        Panel(
            "Rows compared",
            "Rows of the window and of its reference: few rows make noisy distances.",
            (
                Query(f"attributary_drift_rows{{{_OUTPUT_DRIFT}}}", "window"),
                Query(f"attributary_drift_reference_rows{{{_OUTPUT_DRIFT}}}", "reference"),
            ),
            "short",
        ),
        Panel(
            "Age of the comparison",
            "Time since drift was last computed.",
            (Query(f"time() - attributary_drift_timestamp_seconds{{{_OUTPUT_DRIFT}}}", "age"),),
            "s",
            kind="stat",
            width=6,
            height=4,
        ),
    ),
)

PIPELINE = Dashboard(
    uid="attributary-pipeline",
    title="Attributary / Pipeline",
    description="Whether every row arrives, and how fast.",
    panels=(
        Panel(
            "Rows counted",
            "Rows a second that are counted in sketches, by model.",
            (
                Query(
                    "sum by (model) (rate(attributary_rows_accepted_total[$__rate_interval]))",
                    "{{model}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "Rows rejected",
            "Rows a second that went to the dead letters, by reason.",
            (
                Query(
                    "sum by (model, reason) (rate(attributary_rows_rejected_total[$__rate_interval]))",
                    "{{model}}: {{reason}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "Lag",
            "Records of each partition that no worker has read yet.",
            (
                Query(
                    "sum by (topic, partition) (attributary_lag_records)", "{{topic}}/{{partition}}"
                ),
            ),
            "short",
        ),
        Panel(
            "Gaps",
            "Offsets whose rows are lost: no manifest covers them. Anything above 0 is a loss.",
            (
                Query(
                    "max by (topic, partition) (attributary_gap_offsets)",
                    "{{topic}}/{{partition}}",
                ),
                Query(
                    "sum by (topic, partition) (attributary_lost_offsets_total)",
                    "{{topic}}/{{partition}} dropped before read",
                ),
            ),
            "short",
        ),
        Panel(
            "Watermark delay",
            "How far event time is behind the clock, by model. It grows where rows stop.",
            (Query("time() - max by (model) (attributary_watermark_seconds)", "{{model}}"),),
            "s",
        ),
        Panel(
            "Windows published",
            "Windows a second, revisions counted.",
            (
                Query(
                    "sum by (model) (rate(attributary_windows_published_total[$__rate_interval]))",
                    "{{model}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "Flush and publish times",
            "99th percentile of the time that a flush of sketches or a round of results takes.",
            (
                Query(
                    _quantile(0.99, "flush_seconds"),
                    "flush",
                ),
                Query(
                    _quantile(0.99, "publish_seconds"),
                    "publish",
                ),
            ),
            "s",
        ),
        Panel(
            "Sketches",
            "Bytes a second of pane sketches sent, beside the bytes of rows read.",
            (
                Query("sum(rate(attributary_sketch_bytes_total[$__rate_interval]))", "sketches"),
                Query("sum(rate(attributary_message_bytes_total[$__rate_interval]))", "rows"),
            ),
            "Bps",
        ),
        Panel(
            "Rows left out of sketches",
            "Share of the newest windows' rows that the lightweight mode left out; 0 while it is off.",
            (
                Query(
                    "max by (model, window) (attributary_window_thinned_ratio)",
                    "{{model}}, {{window}}",
                ),
            ),
            "percentunit",
        ),
        Panel(
            "Age of snapshots",
            "Time since the state of each partition of sketches was last written down.",
            (
                Query(
                    "time() - max by (partition) (attributary_snapshot_timestamp_seconds)",
                    "{{partition}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Memory",
            "Resident memory of every process.",
            (
                Query(
                    'process_resident_memory_bytes{job="attributary"}',
                    "{{instance}}",
                ),
            ),
            "bytes",
        ),
        Panel(
            "Processors",
            "Processors that every process keeps busy.",
            (
                Query(
                    'rate(process_cpu_seconds_total{job="attributary"}[$__rate_interval])',
                    "{{instance}}",
                ),
            ),
            "short",
        ),
    ),
)

ON_DEMAND = Dashboard(
    uid="attributary-on-demand",
    title="Attributary / On demand",
    description="Explanations on request: how many, how long, and what went wrong.",
    panels=(
        Panel(
            "Requests answered",
            "Final answers a second, by method and outcome.",
            (
                Query(
                    "sum by (method, outcome) (rate(attributary_ondemand_requests_total[$__rate_interval]))",
                    "{{method}}: {{outcome}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "Errors",
            "Requests answered with an error a second, by its code.",
            (
                Query(
                    "sum by (model, code) (rate(attributary_ondemand_errors_total[$__rate_interval]))",
                    "{{model}}: {{code}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "Queue",
            "Requests that wait, and that are computed now.",
            (
                Query(
                    "sum by (priority) (attributary_ondemand_queued_requests)",
                    "waiting, {{priority}}",
                ),
                Query("sum(attributary_ondemand_in_flight_requests)", "in work"),
            ),
            "short",
        ),
        Panel(
            "Durations",
            "Median and 95th percentile of the time that a request is computed, by method.",
            (
                Query(
                    _quantile(0.5, "ondemand_request_seconds", "method"),
                    "{{method}} p50",
                ),
                Query(
                    _quantile(0.95, "ondemand_request_seconds", "method"),
                    "{{method}} p95",
                ),
            ),
            "s",
        ),
        Panel(
            "Waiting",
            "95th percentile of the time from the request to the start of the work.",
            (
                Query(
                    _quantile(0.95, "ondemand_waiting_seconds", "priority"),
                    "{{priority}}",
                ),
            ),
            "s",
        ),
        Panel(
            "Model evaluations",
            "Rows a second that models are asked for, by model.",
            (
                Query(
                    "sum by (model) (rate(attributary_ondemand_model_rows_total[$__rate_interval]))",
                    "{{model}}",
                ),
            ),
            "cps",
        ),
        Panel(
            "Device use",
            "Share of the time that a worker computes: requests in work, averaged, by process.",
            (
                Query(
                    "avg_over_time(attributary_ondemand_in_flight_requests[5m])",
                    "{{instance}}",
                ),
            ),
            "short",
        ),
        Panel(
            "Models open",
            "Models that a process holds open.",
            (Query("attributary_ondemand_models_open", "{{instance}}"),),
            "short",
        ),
    ),
)

DASHBOARDS = (ATTRIBUTIONS, DRIFT, PIPELINE, ON_DEMAND)
