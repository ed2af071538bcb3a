"""promtool's own unit tests of the rules: every alert on its fault, and a healthy hour that stays quiet."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

RULES = Path(__file__).parents[2] / "deploy" / "prometheus"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)"
)


@needs_promtool
@pytest.mark.parametrize(
    "arguments", [["check", "rules", "rules.yml"], ["test", "rules", "rules_test.yml"]]
)
def test_promtool_passes(arguments: list[str]) -> None:
    done = subprocess.run(
        ["promtool", *arguments], cwd=RULES, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test_that_it_fires() -> None:
    rules = yaml.safe_load((RULES / "rules.yml").read_text())["groups"]
    alerts = {rule["alert"] for group in rules for rule in group["rules"] if "alert" in rule}
    tests = yaml.safe_load((RULES / "rules_test.yml").read_text())["tests"]
    fired = {
        case["alertname"]
        for test in tests
        for case in test.get("alert_rule_test", [])
        if case.get("exp_alerts")
    }
    assert fired == alerts
