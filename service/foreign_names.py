"""The names of foreign formats, for help texts that must be quick; a test holds them to the adapters'."""

from __future__ import annotations

FOREIGN = (
    "kserve",
    "seldon",
    "v2",
    "tfserving",
    "mlflow",
    "inference-table",
    "sagemaker",
    "bentoml",
    "mapping",
)
