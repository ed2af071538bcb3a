"""What the request workers answer: progress, and exactly one final answer per request."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from attributary.schemas.card import ModelName
from attributary.schemas.message import Message
from attributary.schemas.request import MethodName, RequestId, StreamWindow

#: What a record of the explanations topic holds.
KIND_HEADER = "attributary-kind"
FINAL, PROGRESS = b"final", b"progress"
#: Where the request lies, as topic/partition/offset.
ORIGIN_HEADER = "attributary-origin"

Outcome = Literal["result", "error", "expired", "cancelled"]


class ErrorCode(str, Enum):
    """Why a request ended without a result: the whole set, because it becomes a metric's label."""

    MODEL_UNKNOWN = "model_unknown"
    ARTEFACT_MISSING = "artefact_missing"
    ARTEFACT_REFUSED = "artefact_refused"
    ARTEFACT_CHANGED = "artefact_changed"
    MODEL_NOT_LOADABLE = "model_not_loadable"
    MODEL_FAILED = "model_failed"
    BAD_OUTPUT = "bad_output"
    BAD_REQUEST = "bad_request"
    LIMIT_EXCEEDED = "limit_exceeded"
    METHOD_UNKNOWN = "method_unknown"
    SAMPLES_MISSING = "samples_missing"
    WORKER_LOST = "worker_lost"
    INTERNAL = "internal"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_inf_nan="null")


class Failure(_Part):
    """Why there is no result."""

    code: ErrorCode
    message: str


class Contribution(_Part):
    """One feature's part in one output of one instance, in the output's units."""

    feature: str
    value: float | str | None
    contribution: float | None = Field(
        description="Against the background's mean; null: undefined."
    )
    gradient: float | None = Field(
        default=None, description="Output per unit of the feature; null for a categorical."
    )
    step: float | None = Field(default=None, description="Half width of the difference, its units.")


class LocalContributions(_Part):
    """base_value + Σ contributions + additivity_gap = prediction."""

    instance: int
    id: str | None = None
    output: str
    prediction: float
    base_value: float
    additivity_gap: float
    features: list[Contribution]


class TExplainerResult(_Part):
    """Gradients by finite differences and what they contribute."""

    method: Literal["t-explainer"] = "t-explainer"
    explanations: list[LocalContributions]
    notes: list[str] = Field(default=[], description="How to read the numbers, in sentences.")


class OrderImportance(_Part):
    """What one feature's value and its position are worth, with standard errors."""

    feature: str
    value: float | str | None
    value_importance: float
    position_importance: float
    value_stderr: float | None = None
    position_stderr: float | None = None
    gamma: list[float | None] | None = Field(
        default=None, description="Shapley value of the feature at each position."
    )


class LocalOrder(_Part):
    """Σ value_importance + completeness_gap = mean prediction over orders - masked prediction."""

    instance: int
    id: str | None = None
    output: str
    prediction: float
    base_value: float
    completeness_gap: float
    positions: list[float] = Field(default=[], description="Places of the columns of gamma.")
    features: list[OrderImportance]


class OrdShapResult(_Part):
    """Values and positions of a sequence's features."""

    method: Literal["ordshap"] = "ordshap"
    explanations: list[LocalOrder]
    notes: list[str] = []


class EstimatorScore(_Part):
    """The score by one estimator."""

    score: float
    stderr: float | None = None


class UniqueInformation(_Part):
    """What one feature says of the output that its neighbourhood does not; information in nats."""

    feature: str
    kind: Literal["continuous", "discrete"]
    ranked: bool = Field(description="False: no neighbourhood; judge it by its marginal alone.")
    rank: int | None = Field(description="From 1, the highest score; null: not ranked.")
    score: float = Field(description="2U / (U + J), from 0 to 1.")
    interval: tuple[float, float] | None = Field(default=None, description="95 %, of the score.")
    stderr: float | None = None
    unique: float = Field(description="U = I(Q; X | neighbourhood).")
    joint: float = Field(description="J = I(Q; X, neighbourhood).")
    marginal: float = Field(description="I(Q; X).")
    neighbourhood: list[str]
    estimator: str
    by_estimator: dict[str, EstimatorScore] = Field(
        default={}, description="With 'switch': what each that fits says."
    )
    flags: list[str] = Field(default=[], description="What makes the score doubtful.")


class NeighbourhoodSize(_Part):
    """What speaks for one size of neighbourhoods; the least total is chosen."""

    size: int
    instability: float
    leftover: float
    penalty: float
    total: float


class RankStability(_Part):
    """How much resamples agree on the ranked features, means over pairs; null: undefined."""

    kendall: float | None
    jaccard: float | None = Field(description="Of the first ``head`` features.")
    head: int


class DependenceChange(_Part):
    """Whether features depend on each other as they did where the neighbourhoods were found."""

    largest: float = Field(
        description="Largest change of a correlation of normal scores that chance does not explain, of "
        "pairs at or above the screen's threshold before or now; 0: none."
    )
    pair: tuple[str, str] | None = Field(description="The features of that pair.")
    limit: float = Field(description="Above it neighbourhoods are found anew.")
    rows_before: int


class Neighbourhoods(_Part):
    """Where the neighbourhoods come from, and what they were screened with."""

    origin: Literal["found", "reused", "given"]
    found_on: StreamWindow | None = Field(
        default=None, description="Window of the rows that they were found on; null: other rows."
    )
    screen: str
    threshold: float
    max_candidates: int
    sizes: list[int]
    change: DependenceChange | None = Field(
        default=None, description="Null: not compared with earlier rows."
    )


class FidelityComponent(_Part):
    """One distance between the full and the light run, beside its tolerance; null: undefined."""

    name: Literal["outputs", "projected", "rank", "head", "curves"]
    value: float | None
    tolerance: float
    passed: bool | None


class LightRun(_Part):
    """The same from a part of the rows, and how true it is to the full run."""

    sampling: Literal["uniform", "stratified"]
    rows: int
    outputs: int | None = Field(
        description="Components that the outputs were reduced to; null: as they are."
    )
    head: int = Field(description="Leading features that 'head' compares.")
    components: list[FidelityComponent]
    seconds: float
    seconds_full: float


class McirResult(_Part):
    """Unique information under dependence, all outputs that were asked for as one Q."""

    method: Literal["mcir-m"] = "mcir-m"
    outputs: list[str]
    observed: bool = Field(
        description="Outputs as they came with the stream's rows; else asked for."
    )
    window: StreamWindow | None = Field(
        default=None, description="Of the stream's rows; null: rows of the request."
    )
    rows: int
    rows_left_out: int = Field(description="Rows with a missing value.")
    neighbourhoods: Neighbourhoods | None = None
    size: int | None = Field(
        description="Neighbours of a feature at most, as chosen; null: not chosen here."
    )
    sizes: list[NeighbourhoodSize]
    stability: RankStability | None
    features: list[UniqueInformation] = Field(
        description="Those ranked, then the others by marginal."
    )
    light: LightRun | None = Field(default=None, description="Null: not asked for.")
    notes: list[str] = []


Result = Annotated[TExplainerResult | OrdShapResult | McirResult, Field(discriminator="method")]


class Progress(Message):
    """How far a request is. Of no consequence for the answer.

    ``attempt`` counts the workers that began with it; "released" takes the last "started" back.
    """

    SCHEMA: ClassVar[str] = "attributary.progress/1"

    id: RequestId
    state: Literal["started", "running", "released"]
    attempt: int
    done: int = Field(default=0, description="Steps done, of ``total``; 0 of 0: not known.")
    total: int = 0
    at: int = Field(description="Milliseconds since the epoch.")


class Explanation(Message):
    """The final answer. Of two with one id the first in log order holds."""

    SCHEMA: ClassVar[str] = "attributary.explanation/1"

    id: RequestId
    model: ModelName | None = Field(default=None, description="null: the request cannot be read.")
    method: MethodName | None = None
    outcome: Outcome
    error: Failure | None = Field(default=None, description="Where the outcome is 'error'.")
    result: Result | None = Field(default=None, description="Where the outcome is 'result'.")
    background_rows: int = 0
    model_calls: int = Field(default=0, description="Batches that the model was asked for.")
    model_rows: int = Field(default=0, description="Rows in them.")
    artefact_sha256: str | None = None
    seed: int = 0
    attempt: int = Field(default=1, description="Which worker's attempt this is.")
    requested_at: int = Field(description="Broker's time of the request, milliseconds.")
    computed_at: int
    seconds: float = Field(description="Time from the start of the work to the answer.")
