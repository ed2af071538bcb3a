"""The page's section on accounting: what the numbers rest on."""

from __future__ import annotations

from collections.abc import Iterator

from attributary.schemas.attribution import LightAgreement, WindowAttribution
from attributary.service.report.axes import short
from attributary.service.report.markup import Markup, Part, join, table, tag


def accounting_section(message: WindowAttribution) -> Markup:
    """Return the counts of rows, what was rejected and why, offsets, and the lightweight mode."""
    books = message.accounting
    lost = None
    if books.gaps:
        words = (
            f"{books.gaps:,} offsets are covered by no manifest: rows of them may be missing in all of "
            "these numbers. `attributary doctor` says where."
        )
        lost = tag("p", words, class_="warn")
    rejected = sorted(books.rows_rejected.items())
    return join(
        tag("h3", "Accounting"),
        lost,
        table("What the numbers rest on", ("what", "rows"), _counts(message), "counts"),
        table(
            "Rejected, by reason",
            ("reason", "rows"),
            ([reason, f"{rows:,}"] for reason, rows in rejected),
            "counts",
        )
        if rejected
        else tag("p", "No row was rejected.", class_="dim"),
        table(
            "Offsets of the rows topic that the view of this window's worker covers",
            ("partition", "from", "to, exclusive"),
            (
                [name, f"{low:,}", f"{high:,}"]
                for name, (low, high) in sorted(books.offsets.items())
            ),
            "counts",
        ),
        _light(message.light_agreement),
    )


def _counts(message: WindowAttribution) -> Iterator[list[Part]]:
    books = message.accounting
    yield ["in this window", f"{books.rows:,}"]
    if books.rows_thinned:
        yield ["of these, left out of the scores (lightweight mode)", f"{books.rows_thinned:,}"]
    shares = ", ".join(f"{share:.3g}" for share in books.fractions)
    yield ["shares of the rows that blocks were sketched at", shares or "–"]
    yield ["accepted so far, all windows", f"{books.rows_accepted:,}"]
    yield ["rejected so far", f"{sum(books.rows_rejected.values()):,}"]
    yield ["too late for any window", f"{books.rows_late:,}"]
    yield ["offsets in gaps", f"{books.gaps:,}"]
    yield ["sketches received again and superseded", f"{books.duplicates:,}"]
    yield ["grid epochs", ", ".join(map(str, message.epochs)) or "–"]


def _light(found: LightAgreement | None) -> Markup | None:
    if found is None:
        return None
    rows: list[list[Part]] = [
        ["rows of the calibration blocks", f"{found.rows:,}"],
        ["of these, behind the light scores", f"{found.rows_light:,}"],
        ["Kendall's tau", short(found.kendall)],
        ["Spearman's rho", short(found.spearman)],
        ["Jaccard of the first 8", short(found.jaccard_at_8)],
        ["Procrustes residual", short(found.procrustes)],
        ["symmetric KL divergence", short(found.symmetric_kl)],
    ]
    return table(
        "Lightweight mode: agreement of the light scores with full ones",
        ("measure", "value"),
        rows,
        "counts",
    )
