"""The formats by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from attributary.schemas.adapters.bentoml import read_bentoml
from attributary.schemas.adapters.exchanges import read_exchange, read_inference_table
from attributary.schemas.adapters.inference import Naming, Part
from attributary.schemas.adapters.kserve import read_kserve
from attributary.schemas.adapters.mapping import Mapping
from attributary.schemas.adapters.message import ForeignMessage
from attributary.schemas.adapters.sagemaker import read_sagemaker
from attributary.schemas.adapters.seldon import read_seldon
from attributary.schemas.errors import ConfigurationError, Reason, RejectedError

FORMATS = {
    "kserve": "KServe's inference logger: CloudEvents with V1 or V2 bodies",
    "seldon": "Seldon Core 2: the .inputs and .outputs topics of a model or pipeline",
    "v2": "Open Inference Protocol: requests and responses with tensors, as JSON",
    "tfserving": "TensorFlow Serving and V1: instances and predictions",
    "mlflow": "MLflow serving: dataframe_split, dataframe_records, inputs or instances",
    "inference-table": "Databricks inference tables of MLflow models",
    "sagemaker": "SageMaker data capture",
    "bentoml": "BentoML's monitoring log",
    "mapping": "any other JSON, by a mapping file",
}
MAX_MESSAGE_BYTES = 8 * 2**20


@dataclass(frozen=True)
class Adapter:
    """A format and what the user calls things; ConfigurationError: they do not fit."""

    format: str
    naming: Naming = field(default_factory=Naming)
    mapping: Mapping | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigurationError(
                f"no format {self.format!r:.40}: there are {', '.join(FORMATS)}"
            )
        if (self.format == "mapping") != (self.mapping is not None):
            raise ConfigurationError("--format mapping and --mapping FILE go together")
        if self.format == "bentoml" and not self.naming.outputs:
            raise ConfigurationError(
                "bentoml: name the columns that were logged as predictions with --outputs"
            )

    def read(self, message: ForeignMessage) -> list[Part]:
        """Return what a message holds; RejectedError: it is none of this format."""
        if len(message.value) > MAX_MESSAGE_BYTES:
            raise RejectedError(
                Reason.TOO_LARGE,
                f"{len(message.value)} bytes; at most {MAX_MESSAGE_BYTES} are read from one message",
            )
        if self.mapping is not None:
            return self.mapping.read(message)
        if self.format == "bentoml":
            return read_bentoml(message, self.naming.outputs)
        return _READERS[self.format](message)


_READERS: dict[str, Callable[[ForeignMessage], list[Part]]] = {
    "kserve": read_kserve,
    "seldon": read_seldon,
    "v2": lambda message: read_exchange(message, "v2"),
    "tfserving": lambda message: read_exchange(message, "v1"),
    "mlflow": lambda message: read_exchange(message, "mlflow"),
    "inference-table": read_inference_table,
    "sagemaker": read_sagemaker,
}
