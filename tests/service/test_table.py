"""What the live table says, read as text: numbers, directions, windows, drift, and its width."""

from __future__ import annotations

import io

from results import DAY, LIFETIME, MAY, attribution, drift, hopping, score
from rich.console import Console

from attributary.schemas.manifest import Manifest, ModelCount
from attributary.service.accounting import ManifestFold
from attributary.service.demo.table import WIDTH, View
from attributary.service.latest import Latest
from attributary.service.words import duration, moment


def view(latest: Latest) -> View:
    return View(title="flights", unit="minutes", latest=latest, total=284_821)


def text(shown: View) -> str:
    stream = io.StringIO()
    Console(file=stream, width=WIDTH, color_system=None).print(shown.render())
    return stream.getvalue()


def line(rendered: str, word: str) -> str:
    return next(each for each in rendered.splitlines() if word in each)


def test_one_output_shows_score_interval_direction_effect_and_drift_beside_its_groups() -> None:
    latest = Latest(["arrival_delay"])
    latest.add_attribution(attribution(hopping(MAY)))
    latest.add_drift(drift(hopping(MAY)))
    rendered = text(view(latest))
    strongest = line(rendered, "dep_delay")
    for part in ("▲", "0.998", "0.990–1.006", "+46.2 ± 0.49"):
        assert part in strongest
    assert "▼ 0.074" in line(rendered, "visib")
    assert "-31.4 ± 3.9" in line(rendered, "visib")
    assert rendered.index("dep_delay") < rendered.index("visib")  # by rank
    assert "carriers" in line(rendered, "dep_delay")  # groups beside, strongest first
    assert "0.779" in line(rendered, "carriers")
    assert "28 days to 2013-05-29, 5,000 rows, final" in rendered
    assert "effect, minutes" in rendered
    assert "temp PSI 3.25" in line(rendered, "features")
    assert "arrival_delay PSI 0.15, moved 4.5 minutes" in rendered
    assert "ranking agrees 0.82" in rendered
    assert rendered.index("temp PSI 3.25") < rendered.index("humid PSI 0.04")


def test_drift_is_coloured_where_it_is_large_and_not_what_chance_gives() -> None:
    latest = Latest(["arrival_delay"])
    latest.add_attribution(attribution(hopping(MAY)))
    latest.add_drift(drift(hopping(MAY), temp=0.3))
    stream = io.StringIO()
    Console(file=stream, width=WIDTH, force_terminal=True, color_system="standard").print(
        view(latest).render()
    )
    features = line(stream.getvalue(), "temp PSI")
    assert "temp PSI \x1b[1;31m0.30" in features  # bold red
    assert "wind PSI \x1b[2m0.31" in features  # dim: within chance


def test_progress_tells_rows_rejections_losses_and_the_watermark_as_a_date() -> None:
    fold = ManifestFold()
    counts = ModelCount(accepted={0: 90_000}, rejected={"wrong_type": 1_234})
    for block, upto in ((0, 10), (15, 20)):
        fold.add(
            Manifest(
                topic="rows", partition=0, block=block, upto=upto, previous=None, sealed=True,
                partitions=1,
                end_offset=20, models={"m": counts} if block else {},
            )
        )  # fmt: skip
    latest = Latest(["arrival_delay"])
    shown = view(latest)
    shown.published, shown.rate, shown.elapsed = 91_234, 4_750.4, 20.0
    shown.accounting = fold.accounting()
    assert "waiting for the first attributions" in text(shown)
    latest.add_attribution(attribution(hopping(MAY), watermark=MAY + DAY // 2))
    rendered = text(shown)
    assert "streaming 20 s · 91,234 of 284,821 rows published · 4,750 rows/s" in rendered
    assert "90,000 accepted · 1,234 rejected (wrong_type 1,234) · 5 offsets lost" in rendered
    assert "watermark 2013-05-01 12:00" in rendered
    light = ModelCount(accepted={0: 2_000}, fraction=0.25, thinned=1_070)
    fold.add(
        Manifest(
            topic="rows", partition=0, block=20, upto=21, previous=15, sealed=True, partitions=1,
            end_offset=21, models={"m": light},
        )
    )  # fmt: skip
    shown.accounting = fold.accounting()
    expected = "92,000 accepted (1,070 of them left out of the scores, lightweight mode)"
    assert expected in " ".join(text(shown).replace("│", " ").split())


def test_several_outputs_take_one_line_each() -> None:
    outputs = [f"digit_{label}" for label in range(10)]
    latest = Latest(outputs)
    for label, output in enumerate(outputs):
        features = [score(f"r{label}c{place}", 0.9 - place / 10, place + 1) for place in range(5)]
        latest.add_attribution(attribution(hopping(MAY), output=output, features=features))
        latest.add_drift(drift(hopping(MAY), output=output))
    rendered = text(view(latest))
    for label in range(10):
        shown = line(rendered, f"digit_{label} ")
        assert f"r{label}c0 ▲ 0.90 ±0.01" in shown
        assert f"r{label}c2 ▲ 0.70 ±0.01" in shown
        assert f"r{label}c3" not in shown
        assert "carriers ▲ 0.78" in shown
    assert "digit_3 PSI 0.15" in line(rendered, "  output")
    assert len(rendered.splitlines()) < 24


def test_it_fits_a_hundred_columns_and_cuts_long_names() -> None:
    latest = Latest(["an_output_with_a_rather_long_name"])
    message = attribution(hopping(MAY), output=latest.outputs[0])
    latest.add_attribution(message)
    latest.add_drift(drift(hopping(MAY), output=latest.outputs[0]))
    rendered = text(view(latest))
    assert max(map(len, rendered.splitlines())) <= 100
    assert "carrier=A-…g-airline" in rendered


def test_the_window_shown_is_the_newest_final_one_and_before_that_the_one_that_ends_first() -> None:
    latest = Latest(["arrival_delay"])
    assert latest.shown("arrival_delay") is None
    latest.add_attribution(attribution(LIFETIME, final=False))
    latest.add_attribution(attribution(hopping(MAY + 7 * DAY), final=False))
    latest.add_attribution(attribution(hopping(MAY), final=False, revision=10))
    latest.add_attribution(attribution(hopping(MAY), final=False, revision=30))
    latest.add_attribution(attribution(hopping(MAY), final=False, revision=20))
    shown = latest.shown("arrival_delay")
    assert shown is not None
    assert (shown.window.start, shown.revision, shown.final) == (MAY, 30, False)
    latest.add_attribution(attribution(hopping(MAY), revision=40))
    latest.add_attribution(attribution(hopping(MAY - 7 * DAY), revision=99))
    latest.add_attribution(attribution(hopping(MAY), final=False, revision=41))
    shown = latest.shown("arrival_delay")
    assert shown is not None
    assert (shown.window.start, shown.revision, shown.final) == (MAY, 40, True)


def test_the_drift_shown_is_that_of_the_window_shown() -> None:
    latest = Latest(["arrival_delay"])
    for week in range(40):
        latest.add_drift(drift(hopping(MAY + 7 * week * DAY), temp=week / 10))
    latest.add_attribution(attribution(hopping(MAY + 7 * 38 * DAY)))
    found = latest.drift("arrival_delay")
    assert found is not None
    assert found.features[1].psi == 3.8
    latest.add_attribution(attribution(hopping(MAY + 7 * 60 * DAY)))
    assert latest.drift("arrival_delay") is None


def test_the_rows_of_the_lifetime_view_are_those_of_its_slowest_output() -> None:
    latest = Latest(["a", "b"])
    latest.add_attribution(attribution(LIFETIME, output="a", revision=7))
    assert latest.rows() == 0
    latest.add_attribution(attribution(LIFETIME, output="b", revision=5))
    latest.add_attribution(attribution(LIFETIME, output="a", revision=6))
    assert (latest.rows(), latest.lifetime["a"].revision) == (5, 7)


def test_lengths_of_time_and_moments_in_words() -> None:
    assert [duration(seconds) for seconds in (28 * 86_400, 86_400, 7_200, 60, 90, 0.5)] == [
        "28 days", "1 day", "2 hours", "1 minute", "90 s", "0.5 s",
    ]  # fmt: skip
    assert (moment(MAY), moment(MAY + 61_000)) == ("2013-05-01", "2013-05-01 00:01")
