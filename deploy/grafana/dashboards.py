"""The four dashboards."""

from __future__ import annotations

from attributions import ATTRIBUTIONS
from drift import DRIFT
from on_demand import ON_DEMAND
from pipeline import PIPELINE

DASHBOARDS = (ATTRIBUTIONS, DRIFT, PIPELINE, ON_DEMAND)
