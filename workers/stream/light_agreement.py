"""How far the scores of a light pass agree with those of all rows, where both were made."""

from __future__ import annotations

import numpy as np

from attributary.schemas.attribution import LightAgreement
from attributary.workers.maths import agreement
from attributary.workers.stream.layout import Floats
from attributary.workers.stream.views import Compared


def light_agreement(compared: Compared | None, outputs: int) -> list[LightAgreement | None]:
    """Return the agreement of every output's score vectors; None without anything to compare.

    The leading features are those of the largest strength |2·CIR − 1|; the Procrustes residual is of the
    signed strengths 2·CIR − 1.
    """
    if compared is None:
        return [None] * outputs
    full, light = (state.evaluate().scores.score for state in (compared.full, compared.light))
    return [_of_output(full[output], light[output], compared) for output in range(outputs)]


def _of_output(full: Floats, light: Floats, compared: Compared) -> LightAgreement:
    rows, thinned = compared.tally.total, compared.tally.rows_thinned
    return LightAgreement(
        rows=rows,
        rows_light=rows - thinned,
        fractions=compared.tally.fractions,
        jaccard_at_8=agreement.jaccard_at_k(np.abs(2 * full - 1), np.abs(2 * light - 1)),
        kendall=agreement.kendall_tau(full, light),
        spearman=agreement.spearman_rho(full, light),
        procrustes=agreement.procrustes_residual(2 * full - 1, 2 * light - 1),
        symmetric_kl=agreement.symmetric_kl(full, light),
    )
