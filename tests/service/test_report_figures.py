"""The report's figures: to scale, and claiming no more than the numbers do."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from report_pages import Words, document_of, full_board, made, unsure
from results import MAY, drift, hopping, score

from attributary.schemas.attribution import (
    FeatureScore,
    Profile,
    WindowDrift,
)
from attributary.service.cells import worst
from attributary.service.report.axes import Axis, labels, short, spanning
from attributary.service.report.drifts import drift_sections
from attributary.service.report.figures import interval_figure, score_marks
from attributary.service.report.profiles import profile_figures


def numbers(svg: str, pattern: str) -> list[float]:
    return [float(found) for found in re.findall(pattern, svg)]


def test_points_and_error_bars_stand_where_their_values_are() -> None:
    marks = score_marks([score("a", 0.25, 1).model_copy(update={"interval": (0.125, 0.375)})])
    svg = interval_figure(marks, "t", axis=(0.0, 1.0), neutral=0.5)
    assert numbers(svg, r'cx="([\d.]+)%"') == [25.0]
    bars = re.findall(r'<line x1="([\d.]+)%" x2="([\d.]+)%"[^>]* class="bar down"/>', svg)
    assert [tuple(map(float, bar)) for bar in bars] == [(12.5, 37.5), (12.5, 12.5), (37.5, 37.5)]
    assert numbers(svg, r'x1="([\d.]+)%"[^>]* class="neutral"') == [50.0]
    assert numbers(svg, r'x1="([\d.]+)%"[^>]* class="grid"') == [0, 20, 40, 60, 80, 100]


def test_ends_of_a_tight_interval_do_not_make_its_point_a_square() -> None:
    svg = interval_figure(score_marks([score("a", 0.25, 1)]), "t", axis=(0.0, 1.0), neutral=0.5)
    assert svg.count('class="bar down"') == 1


def test_no_direction_is_claimed_where_the_interval_includes_a_half() -> None:
    document = document_of(unsure("plan", 0.504, 1, effect=-0.036, effect_stderr=0.03))
    text = Words(document).text
    assert "· 0.504" in text
    assert "· not sure -0.036 ± 0.059" in text
    assert not re.search(r"[▲▼] (with|against|0\.504)", text)
    assert not re.search(r'class="[^"]*\b(up|down)\b', document)


def test_an_unknown_error_is_a_hollow_point_without_limits() -> None:
    document = document_of(unsure("x", 0.504, 1, effect=2.5), unsure("y", 0.4, 2))
    figure = document[document.index('aria-label="Effects') :]
    figure = figure[: figure.index("</figure>")]
    assert "2.5 ± unknown" in Words(figure).text
    assert 'class="point unknown"' in figure
    assert 'class="bar' not in figure
    assert "· not sure 2.5 ± unknown" in Words(document).text, "in the table as well"


def profiled(name: str, **fields: Any) -> FeatureScore:
    return score(name, 0.9, 1, profile=Profile(**fields))


def test_lines_and_bands_of_profiles_break_where_nothing_is_known() -> None:
    some = profiled(
        "x",
        edges=[1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        mean=[0.5, 0.75, None, None, 1.5, 2.5, 2.0],
        stderr=[0.1, 0.1, None, None, 0.1, None, 0.1],
        rows=[10, 10, 0, 0, 10, 1, 10],
    )
    (found,) = profile_figures([some], 20)
    lines = [len(points.split()) for points in re.findall(r'<polyline points="([^"]*)"', found)]
    bands = [len(points.split()) for points in re.findall(r'<polygon points="([^"]*)"', found)]
    assert lines == [2]
    assert bands == [4, 4, 4]
    assert found.count('class="dot"') == 4
    assert found.count('class="dot unknown"') == 1
    assert "5 to 6: 2.5 ± unknown, 1 rows" in Words(found).text
    assert "up to 1: 0.5 ± 0.196, 10 rows" in Words(found).text


def test_profiles_of_an_output_have_one_scale_with_two_ticks_at_least() -> None:
    steep = profiled("steep", edges=[0.0], mean=[-3.0, 3.9], stderr=[0.0, 0.0], rows=[5, 5])
    flat = profiled("flat", edges=[0.5], mean=[0.25, 0.75], stderr=[0.0, 0.0], rows=[5, 5])
    ticks = [re.findall(r'y="([\d.]+)" class="tick" text-anchor="end">([^<]*)', found)
             for found in profile_figures([steep, flat], 20)]  # fmt: skip
    assert ticks[0] == ticks[1]
    assert len(ticks[0]) >= 2
    rises = [numbers(found, r'cy="([\d.]+)"') for found in profile_figures([steep, flat], 20)]
    assert (rises[1][0] - rises[1][1]) / (rises[0][0] - rises[0][1]) == pytest.approx(
        0.5 / 6.9, rel=0.01
    )


def test_a_level_of_a_category_is_or_is_not() -> None:
    edges, none = [0.0] * 3, [None, None]
    fields = {
        "edges": edges,
        "mean": [1.0, *none, 2.0],
        "stderr": [0.1, *none, 0.1],
        "rows": [9, 0, 0, 3],
    }
    level, flag = profile_figures([profiled("dest=XYZ", **fields), profiled("late", **fields)], 20)
    assert "is not is" in Words(level).text
    assert "≤ 0 > 0" in Words(flag).text
    assert len(re.findall(r'<polyline points="[^ "]* [^ "]*"', level)) == 1, (
        "no cell lies between them"
    )


def test_profiles_of_one_cell_take_no_place_and_top_says_how_many_are_shown() -> None:
    constant = profiled("constant", edges=[3.25], mean=[0.5, None], stderr=[0.1, None], rows=[5, 0])
    varied = [
        profiled(f"x{k}", edges=[0.0], mean=[0.5, 1.0], stderr=[0.1, 0.1], rows=[5, 5])
        for k in range(12)
    ]
    text = Words(document_of(constant, *varied)).text
    assert "The first 12 features that take two values or more" in text
    assert "Mean output over the cells of constant" not in text
    assert "The first 3 features" in Words(document_of(constant, *varied, top=3)).text
    nothing = profiled("x", edges=[], mean=[None], stderr=[None], rows=[0])
    assert profile_figures([nothing], 20) == []
    torn = profiled("x", edges=[1.0], mean=[0.5, 1.0, 1.5], stderr=[0.1], rows=[5])
    assert profile_figures([torn], 20) == [], "whoever wrote that"


def drifted(psi: float | None, critical: float | None, output: float = 0.01) -> WindowDrift:
    found = drift(hopping(MAY))
    update = {"psi": psi, "psi_critical": critical}
    return found.model_copy(
        update={
            "features": [found.features[0].model_copy(update=update)],
            "output_drift": found.output_drift.model_copy(
                update={"psi": output, "psi_critical": 0.4}
            ),
        }
    )


@pytest.mark.parametrize(
    ("psi", "critical", "class_", "words"),
    [
        (0.02, 0.002, "fill", "0.02"),
        (0.0, None, "fill", "0"),
        (0.3, 0.4, "fill", "0.3 within chance"),
        (0.2, 0.1, "fill noticeable", "0.2 noticeable"),
        (0.65, 0.4, "fill large", "0.65 large"),
    ],
)
def test_bars_of_drift_say_what_the_words_say(
    psi: float, critical: float | None, class_: str, words: str
) -> None:
    document = drift_sections([drifted(psi, critical)], 20)
    assert re.findall(r'<rect [^>]*class="([^"]*)"', document)[1] == class_
    assert re.findall(r'class="number">([^<]*)<', document)[1] == words


def test_drift_of_the_output_is_named() -> None:
    told = Words(drift_sections([drifted(0.01, 0.4, output=0.65)], 20)).text
    assert "The output itself drifted: large (PSI 0.65, chance up to 0.4)." in told
    told = Words(drift_sections([drifted(0.9, 0.4, output=0.3)], 20)).text
    assert "No drift of the output is seen (PSI 0.3, chance up to 0.4)." in told
    told = Words(made(full_board("x"))).text
    assert "The output itself drifted: noticeable (PSI 0.15, chance up to 0.02)." in told
    little = drifted(0.01, 0.4)
    output = little.output_drift.model_copy(update={"psi": 0.08, "psi_critical": 0.001})
    told = Words(drift_sections([little.model_copy(update={"output_drift": output})], 20)).text
    assert "The output drifted a little, yet beyond chance (PSI 0.08, chance up to 0.001)." in told


def test_a_large_index_is_cut_off_and_leaves_room_for_the_others() -> None:
    document = drift_sections([drifted(13.6, 0.4, output=0.25)], 20)
    assert numbers(document, r'<rect [^>]*width="([\d.]+)%"') == [25.0, 100.0]
    assert document.count('class="break"') == 2
    assert numbers(document, r'<line x1="([\d.]+)%"[^>]* class="threshold"/>') == [10.0, 25.0]
    assert 'class="break"' not in drift_sections([drifted(0.9, 0.4)], 20)


def test_columns_beyond_chance_come_before_larger_ones_within_it() -> None:
    column = drift(hopping(MAY)).features[0]
    told = {"chance": (0.9, 1.5), "small": (0.02, 0.002), "noticeable": (0.2, 0.1), "large": (0.3, 0.1),
            "unknown": (None, None), "unjudged": (0.5, None)}  # fmt: skip
    columns = [
        column.model_copy(update={"name": name, "psi": psi, "psi_critical": critical})
        for name, (psi, critical) in told.items()
    ]
    order = [found.name for found in worst(columns, 6)]
    assert order == ["large", "unjudged", "noticeable", "small", "chance", "unknown"]
    assert [found.name for found in worst(columns, 2)] == ["large", "unjudged"]


def test_axes_hold_any_value_and_ticks_are_round() -> None:
    axis = Axis(0.0, 1.0, 100.0, 200.0)
    assert [axis.at(v) for v in (-5.0, 0.0, 0.25, 1.0, 1e300)] == [100, 100, 125, 200, 200]
    for span in np.geomspace(0.1, 100.0, 301):
        for low in (-0.43 * span, 0.0, 17.77):
            ticks = Axis(low, low + span, 0.0, 1.0).ticks(3)
            assert 2 <= len(ticks) <= 5, (low, span, ticks)
            assert low - 1e-9 * span <= min(ticks) < max(ticks) <= (low + span) * (1 + 1e-9)
    assert labels([0.0, 0.5, 1e7]) == ["0", "0.5", "1e+07"]
    assert labels([9_999_999.0, 10_000_001.0]) == ["9999999", "10000001"]
    assert axis.ticks() == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert Axis(3.0, 3.0, 0.0, 10.0).at(3.0) == 5.0
    wide = spanning([-1e308, 1e308, float("nan"), float("inf")], 0.0, 10.0)
    assert 0.0 <= wide.at(0.0) <= 10.0
    assert wide.ticks()
    assert spanning([], 0.0, 1.0, zero=True).ticks()
    assert [short(v) for v in (None, 0.0, 1234567.0, float("nan"))] == ["–", "0", "1.235e+06", "–"]
