"""Alerting rules with one change: numbers, durations, labels and clauses of which each has its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Rule = dict[str, Any]

#: Clauses of an expression, and what is put in their place.
CLAUSES = {
    "model:attributary_rows_accepted:rate5m": [
        (" or rate(attributary_rows_accepted_total[5m])", ""),
        (" unless attributary_rows_accepted_total offset 5m", ""),
        (") / 300", ")"),
    ],
    "model:attributary_rows_rejected:rate5m": [
        (" or rate(attributary_rows_rejected_total[5m])", ""),
        (" unless attributary_rows_rejected_total offset 5m", ""),
        (" or process_start_time_seconds > time() - 300", ""),
        ("process_start_time_seconds > time() - 300", "process_start_time_seconds"),
        ("up offset 5m == 1", "up offset 5m"),
        (") / 300", ")"),
    ],
    "kind:attributary_snapshot_failures:increase30m": [
        (" or increase(attributary_snapshot_failures_total[30m])", ""),
        (" unless attributary_snapshot_failures_total offset 30m", ""),
        ("offset 30m", "offset 2m"),
    ],
    "AttributaryLostOffsets": [
        (" or increase(attributary_lost_offsets_total[15m])", ""),
        (" unless attributary_lost_offsets_total offset 15m", ""),
        ("offset 15m", "offset 5m"),
    ],
    "AttributaryWatermarkStalled": [
        (" and on (model) (model:attributary_rows_accepted:rate5m > 0)", ""),
        ("offset 10m", "offset 5m"),
    ],
    "AttributaryWatermarkMissing": [
        (" unless on (model) max_over_time(attributary_watermark_timestamp_seconds[5m])", ""),
        ('{model!="(other)"}', ""),
    ],
    "AttributaryDeadLetters": [
        ("(model:attributary_rows_rejected:rate5m + ", "("),
        (" or 0 * model:attributary_rows_rejected:rate5m", ""),
    ],
    "AttributaryLag": [("max by (topic, partition)", "")],
    "AttributaryIngestStalled": [
        (" and on (job, instance) (rate(attributary_messages_total[5m]) == 0)", ""),
    ],
    "AttributaryPartitionUnread": [(" unless on (topic, partition) attributary_lag_records", "")],
    "AttributarySnapshotFailed": [
        ('{kind!="not_written"}', ""),
        (" or kind:attributary_snapshot_failures:increase30m > 2", ""),
    ],
    "AttributaryWorkerDown": [('{job="attributary"}', "")],
    "AttributaryWorkersGone": [('{job="attributary"}', ""), (" == 1", "")],
    "AttributaryRankFlip": [
        ('{window!="lifetime"}', ""),
        (
            " and max by (model, output, window, feature) "
            "(last_over_time(attributary_strength_low_ratio[5m])) > 0.1",
            "",
        ),
        (" and on (model, output, window) (attributary_window_rows offset 1h > 0)", ""),
        (
            " unless (min by (model, output, window, feature) (attributary_rank offset 1h) <= 3)",
            "",
        ),
    ],
    "AttributaryAttributionDrift": [('{reference="baseline"}', "")],
    "AttributaryInputDrift": [
        ('{reference="baseline"}', ""),
        (
            " and last_over_time(attributary_psi_ratio[5m]) "
            "> last_over_time(attributary_psi_critical_ratio[5m])",
            "",
        ),
    ],
    "AttributaryOutputDrift": [
        ('{reference="baseline"}', ""),
        (
            " and last_over_time(attributary_output_ks_ratio[5m]) "
            "> last_over_time(attributary_output_ks_critical_ratio[5m])",
            "",
        ),
    ],
    "AttributaryRequestsWait": [("0.95", "0.97"), ("0.95", "0.93")],
    "AttributaryRequestsStuck": [
        (
            " unless on (job, instance, priority) "
            "(increase(attributary_ondemand_waiting_seconds_count[5m]) > 0)",
            "",
        ),
        ("on (job, instance, priority)", "on (priority)"),
        ("on (job, instance, priority)", "on (job, instance)"),
    ],
    "AttributaryRequestWorkersGone": [(" unless on () attributary_ondemand_models_open", "")],
}
_COMPARISON = re.compile(r"([<>=]=?) (-?[\d.]+(?:e\d+)?)(?![\d.\w])")
_BRIDGE = re.compile(r"(?:last|max|min)_over_time\(([^()]*)\[5m\]([^()]*)\)")
# Not what is aggregated by pod already, nor around what has lost its pod.
_BY = re.compile(r"\bby \(((?:(?!pod)[^()])*)\)(?! \(max by)")


def name_of(rule: Rule) -> str:
    """Return an alert's name, or that of the series that is recorded."""
    return str(rule.get("alert") or rule["record"])


def mutants(rule: Rule) -> Iterator[tuple[str, Rule]]:
    """Yield what is changed, and the rule with that change."""
    text = " ".join(rule["expr"].split())
    changes = [
        (*found.span(), f"{found[1]} {number}")
        for found in _COMPARISON.finditer(text)
        for number in _beside(found[2])
    ]
    changes += [(*found.span(), f"by ({found[1]}, pod)") for found in _BY.finditer(text)]
    changes += [(*found.span(), found[1] + found[2]) for found in _BRIDGE.finditer(text)]
    for old, new in CLAUSES.get(name_of(rule), []):
        if text.count(old) != 1:
            raise ValueError(f"{name_of(rule)} says {old!r} {text.count(old)} times: {text}")
        changes.append((text.index(old), text.index(old) + len(old), new))
    for start, end, new in changes:
        expression = text[:start] + new + text[end:]
        yield f"{text[start:end]!r} becomes {new!r}", {**rule, "expr": expression}
    if "for" in rule:
        minutes = int(rule["for"].removesuffix("m"))
        for other in (f"{2 * minutes}m", f"{minutes // 2}m"):
            yield f"for {rule['for']} becomes {other}", {**rule, "for": other}


def _beside(number: str) -> tuple[str, str]:
    """Return a larger and a smaller number: a fifth away, or one where things are counted."""
    value = float(number)
    step = 1.0 if value.is_integer() and value <= 10 else value / 5
    return f"{value + step:.10g}", f"{value - step:.10g}"
