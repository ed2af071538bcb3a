"""Generated files are what the code generates, and dashboards and rules speak of metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana import expressions_of, panels_of, variables_of

ROOT = Path(__file__).parents[2]
DASHBOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
RULES = ROOT / "deploy" / "prometheus" / "rules.yml"
_NAME = re.compile(r"\b((?:attributary|process|(?:model|kind):attributary)_[a-z0-9_:]+)")


#: What Prometheus itself knows: of alerts, and of what it scrapes.
_OWN = {"ALERTS", "up", "process_start_time_seconds"}
_ADDED = {"job", "instance", "pod", "alertname", "alertstate", "le"}


def known_metrics() -> dict[str, set[str]]:
    """Return the labels of every exported series name, as docs/metrics.md has them from the code."""
    known: dict[str, set[str]] = {}
    for name, kind, labels in re.findall(
        r"^\| `(\w+)` \| (\w+) \|([^|]*)\|",
        (ROOT / "docs" / "metrics.md").read_text(),
        re.MULTILINE,
    ):
        suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        for suffix in suffixes:
            known[name + suffix] = set(re.findall(r"`(\w+)`", labels))
    return known


def expressions() -> list[tuple[str, str]]:
    """Return every expression of the dashboards and the rules, and where it is."""
    found = [each for path in DASHBOARDS for each in expressions_of(path)]
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            found.append((rule.get("alert") or rule["record"], rule["expr"]))
    return found


def anchors(page: str) -> set[str]:
    """Return the anchors of a page of docs/, as GitHub makes them of its headings."""
    text = re.sub(
        r"^```.*?^```", "", (ROOT / "docs" / page).read_text(), flags=re.MULTILINE | re.DOTALL
    )
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def test_generated_files_are_not_stale() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "deploy" / "build.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"run: python deploy/build.py\n{done.stdout}{done.stderr}"


def test_all_four_dashboards_are_there() -> None:
    names = [path.stem.removeprefix("attributary-") for path in DASHBOARDS]
    assert names == ["attributions", "drift", "on-demand", "pipeline"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_has_a_unit_words_and_a_link_to_a_heading(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    assert dashboard["uid"] == path.stem
    assert "__inputs" not in dashboard
    for panel in panels_of(path):
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"], panel["title"]
        assert panel["fieldConfig"]["defaults"]["noValue"], panel["title"]
        assert panel["targets"], panel["title"]
        url = panel["links"][0]["url"]
        page, _, anchor = url.partition("/docs/")[2].partition("#")
        assert anchor in anchors(page), f"{panel['title']}: {url}"


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_have_ids_and_places_of_their_own(path: Path) -> None:
    listed = json.loads(path.read_text())["panels"]
    numbers = [one["id"] for panel in listed for one in (panel, *panel.get("panels", []))]
    assert len(set(numbers)) == len(numbers)
    # What a row folds away lies below it, where the next row is while it is folded.
    for together in (listed, *(panel["panels"] for panel in listed if panel["type"] == "row")):
        places: set[tuple[int, int]] = set()
        for panel in together:
            at = panel["gridPos"]
            cells = {
                (x, y)
                for x in range(at["x"], at["x"] + at["w"])
                for y in range(at["y"], at["y"] + at["h"])
            }
            assert not cells & places, f"{panel['title']} overlaps another"
            assert at["x"] + at["w"] <= 24
            places |= cells


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_no_value_is_red_but_beyond_a_limit_of_its_own(path: Path) -> None:
    for panel in panels_of(path):
        first, *limits = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert first["value"] is None, panel["title"]
        assert first["color"] in ("text", "transparent"), panel["title"]
        style = panel["fieldConfig"]["defaults"]["custom"].get("thresholdsStyle", {"mode": "off"})
        assert (style["mode"] == "dashed") == bool(limits and panel["type"] == "timeseries")


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_variable_is_used_and_every_one_that_is_used_is_there(path: Path) -> None:
    text = "\n".join(expression for _, expression in (*expressions_of(path), *variables_of(path)))
    used = set(re.findall(r"\$(?!__)(\w+)", text))
    listed = json.loads(path.read_text())["templating"]["list"]
    assert used == {one["name"] for one in listed} - {"datasource"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_few_queries_are_asked_every_ten_seconds(path: Path) -> None:
    open_panels = [p for p in json.loads(path.read_text())["panels"] if p["type"] != "row"]
    assert sum(len(panel["targets"]) for panel in open_panels) < 50
    assert not any("repeat" in panel for panel in panels_of(path))


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_an_owner_that_changes_leaves_one_line_and_a_leader_that_changes_a_whole_one(
    path: Path,
) -> None:
    for panel in panels_of(path):
        for target in panel["targets"]:
            expression = target["expr"]
            for metric in re.findall(r"attributary_\w+(?=[{ )\[]|$)", expression):
                inside = rf"(?:(?:rate|last_over_time)\(|time\(\) - )?{metric}"
                aggregated = re.search(
                    rf"\b(?:max|min|sum)( by \([^()]*\))? ?\({inside}", expression
                )
                assert aggregated, f"{panel['title']}: {metric} in {expression}"
            if target["range"]:
                for leading in re.findall(r"(?:topk|bottomk)\(.*", expression):
                    assert "@ end()" in leading, f"{panel['title']}: {expression}"


def test_the_intervals_of_scores_are_the_published_ones() -> None:
    text = (ROOT / "deploy/grafana/dashboards/attributary-attributions.json").read_text()
    assert "stderr" not in text
    panel = next(
        panel
        for panel in json.loads(text)["panels"]
        if panel["title"] == "Scores of the five that lead now"
    )
    filled = {
        override["matcher"]["options"]: {p["id"]: p["value"] for p in override["properties"]}
        for override in panel["fieldConfig"]["overrides"]
    }
    targets = {target["refId"]: target for target in panel["targets"]}
    for rank in range(1, 6):
        low, high, score = (
            next(t for t in targets.values() if f"== {rank}" in t["expr"] and name in t["expr"])
            for name in ("score_low_ratio", "score_high_ratio", "score_ratio")
        )
        assert filled[high["refId"]]["custom.fillBelowTo"] == low["legendFormat"]
        colours = {filled[each["refId"]]["color"]["fixedColor"] for each in (low, high, score)}
        assert len(colours) == 1


def test_limits_in_panels_are_those_of_the_alerts() -> None:
    rules = {
        rule["alert"].removeprefix("Attributary"): " ".join(rule["expr"].split())
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    drawn = {
        (path.stem.removeprefix("attributary-"), panel["title"]): panel["fieldConfig"]["defaults"][
            "thresholds"
        ]["steps"][-1]["value"]
        for path in DASHBOARDS
        for panel in panels_of(path)
    }
    for page, title, alert in (
        ("drift", "Output", "OutputDrift"),
        ("drift", "Attributions", "AttributionDrift"),
        ("drift", "Inputs: PSI", "InputDrift"),
        ("drift", "PSI of $feature", "InputDrift"),
        ("pipeline", "Slowest event loop", "WorkerHung"),
        ("pipeline", "Records that wait", "Lag"),
        ("pipeline", "Rows rejected", "DeadLetters"),
        ("on-demand", "Waiting", "RequestsWait"),
        ("on-demand", "Waiting, p95", "RequestsWait"),
    ):
        numbers = [float(n) for n in re.findall(r"> ([\d.e]+)(?![\w.])", rules[alert])]
        assert drawn[page, title] in numbers, (page, title)


def test_rates_are_asked_for_at_the_interval_of_scrapes() -> None:
    source = yaml.safe_load(
        (ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text()
    )["datasources"][0]
    scraped = yaml.safe_load((RULES.parent / "prometheus.yml").read_text())["global"]
    assert source["jsonData"]["timeInterval"] == scraped["scrape_interval"]


def test_every_expression_speaks_of_metrics_and_labels_that_exist() -> None:
    known = known_metrics()
    records = {
        rule["record"]
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if "record" in rule
    }
    found = [*expressions(), *(each for path in DASHBOARDS for each in variables_of(path))]
    assert len(found) > 100
    for where, text in found:
        names = _NAME.findall(text)
        assert names or _OWN & set(re.findall(r"\w+", text)), where
        for name in names:
            assert name in known or name in records or name.startswith("process_"), (where, name)
        for name, selector in re.findall(r"([a-z_:]+)\{([^}]*)\}", text):
            labels = set(re.findall(r"(\w+)\s*[!=]", selector)) - _ADDED
            assert labels <= known.get(name, labels), (where, name, labels)
        exported = set().union(*known.values()) | _ADDED | {"severity"}
        for by in re.findall(r"\b(?:by|on) \(([^()]*)\)", text):
            assert set(re.findall(r"\w+", by)) <= exported, (where, by)


def test_what_an_engineer_on_call_needs_is_on_a_panel_or_in_a_rule() -> None:
    shown = set(_NAME.findall("\n".join(text for _, text in expressions())))
    # What only an experiment asks: how the lightweight mode agrees, errors whose interval is drawn, sums.
    left_out = re.compile(
        r"_light_|stderr|_sum$|_count$|_messages_total|_message_bytes|thinned_total|sketched_ratio|renewals"
        r"|sketches_(sent|received|superseded)|_ondemand_(model_calls|joined|scheduled|batch_halvings)"
        r"|unique_window_end"
    )
    missing = {name for name in known_metrics() if name not in shown and not left_out.search(name)}
    assert missing == set()


def test_every_alert_has_a_severity_and_a_runbook_that_exists() -> None:
    runbooks = (ROOT / "docs" / "runbooks.md").read_text()
    rules: list[dict[str, Any]] = [
        rule
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for rule in group["rules"]
        if "alert" in rule
    ]
    names = {rule["alert"] for rule in rules}
    assert set(re.findall(r"^## (\w+)$", runbooks, re.MULTILINE)) == names
    listed = (ROOT / "docs" / "deploy.md").read_text()
    assert set(re.findall(r"^\| (Attributary\w+) \|", listed, re.MULTILINE)) == names
    for rule in rules:
        assert rule["labels"]["severity"] in ("warning", "critical"), rule["alert"]
        assert "for" in rule, rule["alert"]
        assert {"summary", "description", "runbook_url"} <= set(rule["annotations"])
        assert rule["annotations"]["runbook_url"].endswith(f"#{rule['alert'].lower()}")
