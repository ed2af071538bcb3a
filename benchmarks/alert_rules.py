"""The alerts on drift that are deployed, evaluated on scrapes as Prometheus does.

Thresholds and durations are those of deploy/prometheus/rules.yml; a rule whose expression is not the one
that is known here is an error, not another result. tests/deploy holds them against promtool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from benchmarks.played import Scrape

RULES = Path(__file__).parents[1] / "deploy" / "prometheus" / "rules.yml"
Labels = tuple[tuple[str, str], ...]
_NUMBER = r"([0-9.]+)"

#: What the expressions look like, but for their numbers.
_FORMS = {
    "AttributaryRankFlip": "( max by (model, output, window, feature) "
    '(last_over_time(attributary_rank{window!="lifetime"}[5m])) == 1 '
    "and max by (model, output, window, feature) "
    "(last_over_time(attributary_strength_low_ratio[5m])) > NUMBER ) "
    "and on (model, output, window) (attributary_window_rows offset 1h > 0) "
    "unless (min by (model, output, window, feature) (attributary_rank offset 1h) <= NUMBER)",
    "AttributaryAttributionDrift": "max by (model, output, window, reference) "
    '(last_over_time(attributary_attribution_change_low_ratio{reference="baseline"}[5m])) > NUMBER',
    "AttributaryInputDrift": "max by (model, window, reference, feature) "
    '( last_over_time(attributary_psi_ratio{reference="baseline"}[5m]) > NUMBER '
    "and last_over_time(attributary_psi_ratio[5m]) "
    "> last_over_time(attributary_psi_critical_ratio[5m]) )",
    "AttributaryOutputDrift": "max by (model, output, window, reference) "
    '( last_over_time(attributary_output_ks_ratio{reference="baseline"}[5m]) > NUMBER '
    "and last_over_time(attributary_output_ks_ratio[5m]) "
    "> last_over_time(attributary_output_ks_critical_ratio[5m]) )",
}
_BRIDGED = 300.0
_HOUR = 3600.0
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Rule:
    """An alert: the numbers in its expression, and for how many seconds it must hold."""

    name: str
    numbers: tuple[float, ...]
    seconds: float

    @property
    def short(self) -> str:
        """The name without the project's."""
        return self.name.removeprefix("Attributary")


def load(path: Path = RULES) -> list[Rule]:
    """Return the rules on drift; ValueError where an expression is not the one that is known."""
    known = {
        rule["alert"]: rule
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    rules = []
    for name, form in _FORMS.items():
        text = " ".join(str(known[name]["expr"]).split())
        found = re.fullmatch(re.escape(form).replace("NUMBER", _NUMBER), text)
        if found is None:
            raise ValueError(f"{name} says {text!r}, which is not {form!r}: teach {__name__}")
        lasting = str(known[name]["for"])
        seconds = float(lasting[:-1]) * _UNITS[lasting[-1]]
        rules.append(Rule(name, tuple(map(float, found.groups())), seconds))
    return rules


@dataclass(frozen=True)
class Verdict:
    """Per scrape, the names (features or outputs) that a rule holds for, and that it fires for."""

    holds: list[set[str]]
    fires: list[set[str]]


def judge(rule: Rule, times: Sequence[float], scrapes: Sequence[Scrape]) -> Verdict:
    """Return the verdict of a rule on scrapes at these times, in seconds; between two all stays as it was.

    An alert fires once its expression has held for the rule's duration, at the scrape that shows it. A series
    that a scrape lacks counts with its value of the five minutes before, as the rules say.
    """
    expression = _EXPRESSIONS[rule.name]
    since: dict[Labels, float] = {}
    holds, fires = [], []
    for k, time in enumerate(times):
        past = [scrapes[i] for i in range(k) if times[i] <= time - _HOUR]
        newest: Scrape = {}
        for i in range(k + 1):
            if times[i] > time - _BRIDGED:
                newest.update(scrapes[i])
        found = expression(rule, newest, past[-1] if past else {})
        since = {labels: since.get(labels, time) for labels in found}
        holds.append({_name(labels) for labels in found})
        lasting = (labels for labels, start in since.items() if time - start >= rule.seconds)
        fires.append({_name(labels) for labels in lasting})
    return Verdict(holds, fires)


def _name(labels: Labels) -> str:
    named = dict(labels)
    return named.get("feature", named.get("output", ""))


def _where(scrape: Scrape, metric: str, **labels: str) -> dict[Labels, float]:
    return {
        found: value
        for (name, found), value in scrape.items()
        if name == metric and all(dict(found).get(k) == v for k, v in labels.items())
    }


def _exceeds(metric: str, critical: str) -> Callable[[Rule, Scrape, Scrape], set[Labels]]:
    def holds(rule: Rule, now: Scrape, past: Scrape) -> set[Labels]:
        chance = _where(now, critical)
        return {
            labels
            for labels, value in _where(now, metric, reference="baseline").items()
            if value > rule.numbers[0] and labels in chance and value > chance[labels]
        }

    return holds


def _changes(rule: Rule, now: Scrape, past: Scrape) -> set[Labels]:
    found = _where(now, "attributary_attribution_change_low_ratio", reference="baseline")
    return {labels for labels, value in found.items() if value > rule.numbers[0]}


def _leads(rule: Rule, now: Scrape, past: Scrape) -> set[Labels]:
    strong, among = rule.numbers
    strength = _where(now, "attributary_strength_low_ratio")
    known = {labels for labels, rows in _where(past, "attributary_window_rows").items() if rows > 0}
    before = _where(past, "attributary_rank")
    return {
        labels
        for labels, rank in _where(now, "attributary_rank").items()
        if rank == 1
        and dict(labels)["window"] != "lifetime"
        and strength.get(labels, 0.0) > strong
        and tuple(each for each in labels if each[0] != "feature") in known
        and not before.get(labels, float("inf")) <= among
    }


_EXPRESSIONS: dict[str, Callable[[Rule, Scrape, Scrape], set[Labels]]] = {
    "AttributaryRankFlip": _leads,
    "AttributaryAttributionDrift": _changes,
    "AttributaryInputDrift": _exceeds("attributary_psi_ratio", "attributary_psi_critical_ratio"),
    "AttributaryOutputDrift": _exceeds(
        "attributary_output_ks_ratio", "attributary_output_ks_critical_ratio"
    ),
}
