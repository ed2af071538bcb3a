"""The page's section on drift: inputs, output, missing values, and the scores themselves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attributary.schemas.attribution import ColumnDrift, WindowDrift
from attributary.service.cells import psi_level, reference_words, worst
from attributary.service.report.axes import short
from attributary.service.report.figures import drift_figure
from attributary.service.report.markup import Markup, Part, join, table, tag
from attributary.service.report.verdicts import drift_words, window_words

_NAMED = 6
_AGREEMENTS = (
    ("Kendall's tau", "kendall"),
    ("Spearman's rho", "spearman"),
    ("Jaccard of the first 8", "jaccard_at_8"),
    ("NDCG of the first 8", "ndcg_at_8"),
    ("Procrustes residual", "procrustes"),
    ("symmetric KL divergence", "symmetric_kl"),
)


def drift_sections(drifts: Sequence[WindowDrift], top: int) -> Markup:
    """Return a section for every reference that the window was compared with."""
    if not drifts:
        return join(
            tag("h3", "Drift"),
            tag("p", "This window was compared with nothing: drift is told of final tumbling and hopping "
                "windows, once there is a baseline or a window before.", class_="dim"),
        )  # fmt: skip
    return join(_section(drift, top) for drift in drifts)


def _section(drift: WindowDrift, top: int) -> Markup:
    against = reference_words(drift)
    if drift.reference_window is not None:
        against += f" ({window_words(drift.reference_window)})"
    columns = [drift.output_drift, *worst(drift.features, len(drift.features))]
    return join(
        tag("h3", f"Drift against {against}"),
        tag("p", f"{drift.rows:,} rows against {drift.reference_rows:,}. The output first, then the "
            "features by their population-stability index (PSI), those beyond chance before the others. "
            "Dotted lines stand at 0.1 (noticeable) and 0.25 (large); the tick is what chance alone exceeds "
            "in 5 % of windows. Bars above 1 are cut off.", class_="dim"),
        _output_moved(drift.output_drift),
        _features_moved(drift),
        drift_figure(columns[: top + 1], f"Drift: {against}"),
        tag("details", tag("summary", "All columns in numbers"),
            _numbers(f"Drift against {against}", columns)),
        table("Agreement of the scores with the reference's: is it still moved by the same features?",
              ("measure", "value"), _agreement(drift), "counts"),
    )  # fmt: skip


def _output_moved(output: ColumnDrift) -> Markup:
    if output.psi is None:
        return tag("p", "Whether the output drifted is not known.")
    chance = "" if output.psi_critical is None else f", chance up to {short(output.psi_critical)}"
    numbers = f"(PSI {short(output.psi)}{chance})"
    if psi_level(output):
        words = f"The output itself drifted: {drift_words(output)} {numbers}."
        return tag("p", words, class_="warn")
    if output.psi_critical is not None and output.psi > output.psi_critical:
        return tag("p", f"The output drifted a little, yet beyond chance {numbers}.")
    return tag("p", f"No drift of the output is seen {numbers}.")


def _features_moved(drift: WindowDrift) -> Markup:
    names = [c.name for c in worst(drift.features, len(drift.features)) if psi_level(c) == 2]
    if not names:
        return tag("p", "No feature drifted by a large PSI beyond chance.")
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    told: list[Part] = []
    for name in names[:_NAMED]:
        told += [", " if told else None, tag("bdi", name)]
    return tag("p", "Large drift beyond chance: ", told, f"{more}.", class_="warn")


def _numbers(caption: str, columns: Sequence[ColumnDrift]) -> Markup:
    titles = (
        "column", "PSI", "critical PSI", "verdict on PSI", "KS", "critical KS", "verdict on KS",
        "Wasserstein", "± resolution", "missing, change", "95 %",
    )  # fmt: skip
    return table(caption, titles, map(_row, columns))


def _row(column: ColumnDrift) -> list[Part]:
    beyond = (
        column.ks is not None and column.ks_critical is not None and column.ks > column.ks_critical
    )
    change, limits = column.missing_change, column.missing_change_interval
    return [
        column.name, short(column.psi), short(column.psi_critical), drift_words(column),
        short(column.ks), short(column.ks_critical), "beyond" if beyond else "",
        short(column.wasserstein), short(column.wasserstein_error),
        "–" if change is None else f"{change:+.2%}",
        "–" if limits is None else f"{limits[0]:+.2%} to {limits[1]:+.2%}",
    ]  # fmt: skip


def _agreement(drift: WindowDrift) -> Iterator[list[Part]]:
    for title, name in _AGREEMENTS:
        yield [title, short(getattr(drift.attributions, name))]
