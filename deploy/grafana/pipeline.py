"""The page of the pipeline: whether every row arrives, and how fast. Dashed lines are where alerts begin."""

from __future__ import annotations

from builder import Column, Dashboard, Panel, Query, Row
from queries import MODELS, age, alerts, most, quantile, rate, stat

_OF_MODELS = 'model=~"$model"'
_WORKERS = 'job="attributary"'
_NO_ROWS = "no rows yet"
_NO_BRIDGE = "no bridge runs"
_BRIDGE = "adapters.md#what-the-bridge-promises"

_NOW = (
    stat(
        "Workers that answer",
        "Processes that Prometheus can scrape.",
        f"sum(up{{{_WORKERS}}}) or vector(0)",
        "none",
        "runbooks.md#attributaryworkersgone",
        limits=((0, "red"), (1, "green")),
    ),
    alerts(""),
    stat(
        "Slowest event loop",
        "How long ago the event loop of the slowest process came round. Above a minute its /healthz fails.",
        "max(time() - attributary_heartbeat_timestamp_seconds)",
        "s",
        "runbooks.md#attributaryworkerhung",
        limits=((0, "green"), (60, "red")),
        empty="no process answers",
    ),
    stat(
        "Records that wait",
        "Records of the rows topic that no worker has read yet.",
        "sum(max by (topic, partition) (attributary_lag_records))",
        "short",
        "runbooks.md#attributarylag",
        limits=((0, "green"), (1e6, "red")),
        empty="no partition is read",
    ),
    stat(
        "Offsets missing",
        "Offsets whose rows are lost: no manifest covers them.",
        "sum(max by (topic, partition) (attributary_gap_offsets))",
        "none",
        "runbooks.md#attributarygap",
        limits=((0, "green"), (1, "red")),
        empty="nothing is merged",
    ),
    stat(
        "Rows rejected",
        "Share of the rows of the last five minutes that went to the dead letters.",
        "sum(rate(attributary_rows_rejected_total[5m]) or vector(0)) / "
        "(sum(rate(attributary_rows_accepted_total[5m])) + "
        "sum(rate(attributary_rows_rejected_total[5m]) or vector(0)))",
        "percentunit",
        "runbooks.md#attributarydeadletters",
        limits=((0, "green"), (0.01, "red")),
        empty=_NO_ROWS,
    ),
    Panel(
        "Alerts that fire",
        "Each has a section of its name in the runbooks.",
        (
            Query(
                "max by (alertname, severity, model, output, feature, topic, partition, instance) "
                '(ALERTS{alertname=~"Attributary.*",alertstate="firing"})',
                "Fires",
            ),
        ),
        "none",
        "runbooks.md#runbooks",
        empty="no alert fires",
        kind="table",
        width=24,
        height=5,
        columns=(Column("Fires", "none", names=((1, "yes", "red"),)),),
        first="severity",
    ),
)

_ROWS = (
    Panel(
        "Rows counted",
        "Rows a second that are counted in sketches, by model.",
        (Query(rate("rows_accepted_total", "model", labels=_OF_MODELS), "{{model}}"),),
        "cps",
        "architecture.md#ingest",
        empty=_NO_ROWS,
    ),
    Panel(
        "Rows rejected, by reason",
        "Rows a second that went to the dead letters.",
        (
            Query(
                rate("rows_rejected_total", "model", "reason", labels='model=~"$model|"'),
                "{{model}}: {{reason}}",
            ),
        ),
        "cps",
        "messages.md#dead-letters",
        empty="no row is rejected",
    ),
    Panel(
        "Lag",
        "Records of each partition that no worker has read yet.",
        (Query("max by (topic, partition) (attributary_lag_records)", "{{topic}}/{{partition}}"),),
        "short",
        "runbooks.md#attributarylag",
        empty="no partition is read",
    ),
    Panel(
        "Gaps",
        "Offsets whose rows are lost: no manifest covers them, or the topic dropped them before they were "
        "read; and those counted behind the end of the log, which has lost its end or is a new one.",
        (
            Query("max by (topic, partition) (attributary_gap_offsets)", "{{topic}}/{{partition}}"),
            Query(
                "sum by (topic, partition) (attributary_lost_offsets_total)",
                "{{topic}}/{{partition}} dropped before read",
            ),
            Query(
                "max by (topic, partition) (attributary_counted_beyond_end_offsets)",
                "{{topic}}/{{partition}} counted behind the log's end",
            ),
        ),
        "none",
        "runbooks.md#attributarygap",
        empty="nothing is merged",
        limits=((1, "red"),),
    ),
    Panel(
        "Watermark delay",
        "How far event time is behind the clock, by model. It grows where rows stop.",
        (Query(age("watermark_timestamp_seconds", _OF_MODELS, "model"), "{{model}}"),),
        "s",
        "runbooks.md#attributarywatermarkstalled",
        empty="nothing is merged",
    ),
    Panel(
        "Windows published",
        "Windows a second, revisions counted.",
        (Query(rate("windows_published_total", "model", labels=_OF_MODELS), "{{model}}"),),
        "cps",
        "concepts.md#windows",
        empty="no window published yet",
    ),
    Panel(
        "Flush and publish times",
        "99th percentile of the time that a flush of sketches, a round of results or a snapshot takes.",
        (
            Query(quantile(0.99, "flush_seconds"), "flush"),
            Query(quantile(0.99, "publish_seconds"), "publish"),
            Query(quantile(0.99, "snapshot_seconds"), "snapshot"),
        ),
        "s",
        "architecture.md#processes",
    ),
    Panel(
        "Sketches",
        "Bytes a second of pane sketches and snapshots sent, beside the bytes of rows read.",
        (
            Query(rate("sketch_bytes_total"), "sketches"),
            Query(rate("snapshot_bytes_total"), "snapshots"),
            Query(rate("message_bytes_total"), "rows"),
        ),
        "Bps",
        "architecture.md#ingest",
    ),
    Panel(
        "Rows left out of sketches",
        "Share of the newest windows' rows that the lightweight mode left out; 0 while it is off.",
        (
            Query(
                most("window_thinned_ratio", _OF_MODELS, "model", "window"),
                "{{model}}, {{window}}",
            ),
        ),
        "percentunit",
        "architecture.md#lightweight-mode",
        empty="no window published yet",
    ),
    Panel(
        "Left out by merge",
        "Sketches and manifests that could not be used, models beyond merge.max_models, and windows "
        "published before their time because too many were open. All of them should be 0.",
        (
            Query("sum(attributary_sketches_unusable_total)", "unusable sketches"),
            Query("sum(attributary_models_refused)", "refused models"),
            Query("sum(attributary_windows_settled_early)", "windows settled early"),
        ),
        "none",
        "architecture.md#bounds",
        empty="nothing is merged",
        limits=((1, "orange"),),
    ),
    Panel(
        "Age of snapshots",
        "Time since the state of each partition of sketches was last written down. It grows where no rows "
        "come.",
        (Query(age("snapshot_timestamp_seconds", "", "partition"), "{{partition}}"),),
        "s",
        "architecture.md#snapshots",
        empty="no snapshot yet",
    ),
    Panel(
        "Snapshots that failed",
        "Since the processes began: not written (made up for by the next), not readable, or older than what "
        "the log still holds.",
        (Query("sum by (kind) (attributary_snapshot_failures_total)", "{{kind}}"),),
        "none",
        "runbooks.md#attributarysnapshotfailed",
        empty="no snapshot failed",
    ),
    Panel(
        "Memory",
        "Resident memory of every process.",
        (Query(f"process_resident_memory_bytes{{{_WORKERS}}}", "{{instance}}"),),
        "bytes",
        "architecture.md#processes",
        empty="no process answers",
    ),
    Panel(
        "Processors",
        "Processors that every process keeps busy.",
        (
            Query(
                f"rate(process_cpu_seconds_total{{{_WORKERS}}}[$__rate_interval])", "{{instance}}"
            ),
        ),
        "short",
        "architecture.md#processes",
        empty="no process answers",
    ),
)

_BRIDGED = Row(
    "Bridge",
    (
        Panel(
            "Foreign messages and rows",
            "Messages a second that the bridge reads, rows that it publishes, messages that are not of what "
            "it reads, and those read again whose rows were published already.",
            (
                Query(rate("adapt_messages_total", "topic"), "{{topic}}: read"),
                Query(rate("adapt_rows_total", "model", labels=_OF_MODELS), "{{model}}: rows"),
                Query(rate("adapt_skipped_total", "reason"), "skipped: {{reason}}"),
                Query(rate("adapt_repeated_total"), "repeated"),
            ),
            "cps",
            _BRIDGE,
            empty=_NO_BRIDGE,
        ),
        Panel(
            "Foreign messages without a row",
            "Messages a second that went to the dead letters, and requests and responses that make no row, "
            "by reason.",
            (
                Query(rate("adapt_rejected_total", "reason"), "rejected: {{reason}}"),
                Query(rate("adapt_lost_halves_total", "reason"), "lost: {{reason}}"),
            ),
            "cps",
            "messages.md#dead-letters",
            empty="no message is lost",
        ),
        Panel(
            "Lag of the bridge",
            "Records of each partition that the bridge has not read yet.",
            (
                Query(
                    "max by (topic, partition) (attributary_adapt_lag_records)",
                    "{{topic}}/{{partition}}",
                ),
            ),
            "short",
            _BRIDGE,
            empty=_NO_BRIDGE,
        ),
        Panel(
            "Halves that wait",
            "Requests and responses that wait for the other, and the bytes of their messages.",
            (
                Query("sum(attributary_adapt_waiting_halves)", "waiting"),
                Query("sum(attributary_adapt_waiting_bytes)", "bytes"),
            ),
            "short",
            "adapters.md#requests-and-responses-that-come-one-by-one",
            empty=_NO_BRIDGE,
            columns=(Column("bytes", "bytes", right=True),),
        ),
    ),
)

PIPELINE = Dashboard(
    uid="attributary-pipeline",
    title="Attributary / Pipeline",
    description="Whether every row arrives, and how fast.",
    variables=(MODELS,),
    panels=(*_NOW, *_ROWS, _BRIDGED),
)
