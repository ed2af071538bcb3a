"""promtool's own unit tests of the rules: every alert on its fault, and healthy hours that stay quiet.

The rules are changed one by one too, and the unit tests must then fail.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from rule_mutants import CLAUSES, Rule, mutants, name_of

RULES = Path(__file__).parents[2] / "deploy" / "prometheus"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)


@needs_promtool
@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "rules", "rules.yml"],
        ["test", "rules", "rules_test.yml"],
        ["test", "rules", "healthy_test.yml"],
    ],
)
def test_promtool_passes(arguments: list[str]) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=RULES, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def all_rules() -> list[Rule]:
    groups = yaml.safe_load((RULES / "rules.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_every_alert_has_a_test_that_it_fires() -> None:
    alerts = {rule["alert"] for rule in all_rules() if "alert" in rule}
    tests = yaml.safe_load((RULES / "rules_test.yml").read_text())["tests"]
    fired = {
        case["alertname"]
        for test in tests
        for case in test.get("alert_rule_test", [])
        if case.get("exp_alerts")
    }
    assert fired == alerts


def passes(folder: Path, rules: list[Rule], tests: list[dict[str, Any]]) -> bool:
    """Say whether promtool's tests pass with these rules, of which alone they speak."""
    names = [name_of(rule) for rule in rules]
    kept = []
    for test in tests:
        cases = {
            key: [case for case in test.get(key, []) if any(n in str(case) for n in names)]
            for key in ("alert_rule_test", "promql_expr_test")
        }
        if any(cases.values()):
            kept.append({**test, **cases})
    assert kept, names
    folder.mkdir()
    content = {"rules.yml": {"groups": [{"name": "changed", "rules": rules}]}}
    content["test.yml"] = {"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": kept}
    for name, text in content.items():
        (folder / name).write_text(json.dumps(text))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yml"], cwd=folder, capture_output=True, check=False
    )
    return done.returncode == 0


@needs_promtool
@pytest.mark.timeout(240)
def test_a_rule_that_is_changed_fails_its_tests(tmp_path: Path) -> None:
    rules = all_rules()
    tests = yaml.safe_load((RULES / "rules_test.yml").read_text())["tests"]
    assert CLAUSES.keys() <= {name_of(rule) for rule in rules}

    def with_rule(rule: Rule) -> list[Rule]:
        """An alert needs the records, and a record is tested by the alerts that use it."""
        name = name_of(rule)
        needed = [r for r in rules if name_of(r) != name and ("record" in r or name in r["expr"])]
        return sorted([rule, *needed], key=lambda r: "alert" in r)

    changed = [
        (f"{name_of(rule)}: {what}", with_rule(other))
        for rule in rules
        for what, other in mutants(rule)
    ]
    unchanged = [(name_of(rule), with_rule(rule)) for rule in rules]
    with ThreadPoolExecutor(2) as pool:
        passed = pool.map(
            lambda each: passes(tmp_path / str(each[0]), each[1][1], tests),
            enumerate([*unchanged, *changed]),
        )
        verdicts = list(passed)
    assert all(verdicts[: len(unchanged)]), "a rule's tests fail without a change"
    survivors = [
        what for (what, _), alive in zip(changed, verdicts[len(unchanged) :], strict=True) if alive
    ]
    assert len(changed) > 120
    assert not survivors, "\n".join(survivors)


@needs_promtool
def test_the_benchmarks_judge_as_promtool_does(tmp_path: Path) -> None:
    """Random gauges with gaps, judged by both: which alerts fire at the end of every minute."""
    code = (
        "import json, sys\n"
        "from benchmarks import alert_rules as a\n"
        "times, scrapes = json.load(sys.stdin)\n"
        "read = [{(n, tuple(map(tuple, l))): v for n, l, v in s} for s in scrapes]\n"
        "found = {r.name: [sorted(f) for f in a.judge(r, times, read).fires] for r in a.load()}\n"
        "print(json.dumps(found))"
    )
    rng = np.random.default_rng(5)
    minutes, about = 180, {"model": "m", "window": "tumbling_60s"}
    series: dict[tuple[str, tuple[tuple[str, str], ...]], list[float]] = {}

    def add(name: str, values: np.ndarray, **labels: str) -> None:
        series[name, tuple(sorted({**about, **labels}.items()))] = np.round(values, 3).tolist()

    def steps(*values: float) -> np.ndarray:
        """A value held for twelve minutes at a time, with a minute of another now and then."""
        held = np.repeat(rng.choice(values, minutes // 12), 12)
        return np.where(rng.random(minutes) < 0.03, rng.choice(values, minutes), held)

    def away(values: np.ndarray) -> np.ndarray:
        """Without three minutes of every forty, while an owner is looked for."""
        return np.where(np.arange(minutes) % 40 >= 37, np.nan, values)

    drift = {"reference": "baseline"}
    add(
        "attributary_attribution_change_low_ratio", away(steps(0.2, 0.3, 0.05)), output="y", **drift
    )
    add("attributary_output_ks_ratio", steps(0.05, 0.3, 0.3), output="y", **drift)
    add("attributary_output_ks_critical_ratio", steps(0.08, 0.12), output="y", **drift)
    add("attributary_window_rows", np.full(minutes, 300.0), output="y")
    ranks = np.array([rng.permutation(5) + 1 for _ in range(minutes // 12)]).repeat(12, axis=0)
    for k, feature in enumerate("abcde"):
        add("attributary_psi_ratio", away(steps(0.1, 0.4, 0.4)), feature=feature, **drift)
        add("attributary_psi_critical_ratio", steps(0.2, 0.3), feature=feature, **drift)
        add("attributary_rank", away(ranks[:, k].astype(float)), feature=feature, output="y")
        add("attributary_strength_low_ratio", steps(0.05, 0.3, 0.3), feature=feature, output="y")

    times = [60.0 * k for k in range(minutes)]
    scrapes = [
        [[name, labels, v[k]] for (name, labels), v in series.items() if v[k] == v[k]]
        for k in range(minutes)
    ]
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps([times, scrapes]),
        cwd=RULES.parents[1],
        capture_output=True,
        text=True,
        check=True,
    )
    fired = json.loads(done.stdout)
    assert [name for name, verdicts in fired.items() if not any(verdicts)] == []
    label = {"AttributaryRankFlip": "feature", "AttributaryInputDrift": "feature"}
    expected = [
        {
            "expr": f"count by ({(by := label.get(alert, 'output'))}) "
            f'(ALERTS{{alertname="{alert}",alertstate="firing"}})',
            "eval_time": f"{k}m",
            "exp_samples": [{"labels": f'{{{by}="{name}"}}', "value": 1} for name in names],
        }
        for alert, verdicts in fired.items()
        for k, names in enumerate(verdicts)
    ]
    given = [
        {
            "series": name + "{" + ",".join(f'{k}="{v}"' for k, v in labels) + "}",
            "values": " ".join("stale" if value != value else str(value) for value in values),
        }
        for (name, labels), values in series.items()
    ]
    test = {"interval": "1m", "input_series": given, "promql_expr_test": expected}
    content = {
        "rule_files": [str(RULES / "rules.yml")],
        "evaluation_interval": "1m",
        "tests": [test],
    }
    path = tmp_path / "judged.yml"
    path.write_text(yaml.safe_dump(content))
    done = subprocess.run(
        ["promtool", "test", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
