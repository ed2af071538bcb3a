"""The model card: what a model's rows look like, and how its windows are cut."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from attributary.schemas.message import Message
from attributary.schemas.row import MAX_NAME

ModelName = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\x21-\x7e]+$")]
PositiveSeconds = Annotated[float, Field(ge=0.001, le=10 * 366 * 86400)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Feature(_Part):
    """One feature as rows name it. A categorical becomes one 0/1 column per level, grouped."""

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    kind: Literal["numeric", "categorical", "token"] = "numeric"
    group: str | None = Field(default=None, description="Block that this feature belongs to.")
    levels: list[str] | None = Field(
        default=None,
        description="Levels of a categorical; others count as '(other)'. Learnt when left out.",
    )
    low: Finite | None = Field(default=None, description="Lower end of the training range.")
    high: Finite | None = Field(default=None, description="Upper end of the training range.")

    @model_validator(mode="after")
    def _consistent(self) -> Feature:
        if self.levels is not None and self.kind == "numeric":
            raise ValueError(f"feature {self.name!r} has levels: give it kind 'categorical'")
        if self.levels is not None and len(set(self.levels)) != len(self.levels):
            raise ValueError(f"feature {self.name!r} names a level twice")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"feature {self.name!r} has low {self.low} above high {self.high}")
        return self


class Tumbling(_Part):
    """Windows that follow each other: [k·size, (k+1)·size)."""

    kind: Literal["tumbling"] = "tumbling"
    seconds: PositiveSeconds


class Hopping(_Part):
    """Overlapping windows: [k·hop, k·hop + size)."""

    kind: Literal["hopping"] = "hopping"
    seconds: PositiveSeconds
    hop_seconds: PositiveSeconds


class Lifetime(_Part):
    """Every row ever counted."""

    kind: Literal["lifetime"] = "lifetime"


class Decayed(_Part):
    """Every row, weighted by 2^(-age / half-life) in event time."""

    kind: Literal["decayed"] = "decayed"
    half_life_seconds: PositiveSeconds


WindowSpec = Annotated[Tumbling | Hopping | Lifetime | Decayed, Field(discriminator="kind")]

ModelFormat = Literal[
    "xgboost", "skops", "onnx", "safetensors", "torch-export", "torchscript", "server"
]

DEFAULT_PANE_SECONDS = 10.0
DEFAULT_WINDOWS: tuple[Tumbling | Hopping | Lifetime | Decayed, ...] = (
    Tumbling(seconds=60.0),
    Lifetime(),
)


class Artefact(_Part):
    """Where the model itself lies, what its bytes must hash to, and which of its outputs is meant."""

    uri: Annotated[str, Field(min_length=1, max_length=4096)] = Field(
        description="A file under a root of the on-demand workers, or http(s)://host/v2/models/NAME."
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = Field(
        default=None, description="Of the file; needed for every file, meaningless for a server."
    )
    format: ModelFormat | None = Field(
        default=None, description="Told by the end of the URI where left out."
    )
    head: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Which of the model's outputs or functions is explained."
    )
    link: Literal["identity", "log-odds"] | None = Field(
        default=None, description="What the head's values are passed through."
    )
    piecewise_constant: bool | None = Field(
        default=None, description="Whether it is built of trees, where its file cannot tell."
    )
    categories: Literal["one-hot", "codes"] = Field(
        default="one-hot",
        description="How the model takes a categorical: one 0/1 column per level of the card (all 0 for "
        "others), or one column with the level's position (missing for others).",
    )

    @model_validator(mode="after")
    def _pinned(self) -> Artefact:
        if self.sha256 is None and not self.uri.startswith(("http://", "https://")):
            raise ValueError(f"artefact {self.uri!r} is a file: it needs its sha256")
        return self


class Digest(_Part):
    """The distribution of one column: t-digest centroids, and how many rows have no finite value."""

    means: list[Finite] = Field(description="Ascending.")
    weights: list[Annotated[float, Field(gt=0, le=1e18)]]
    atoms: list[Annotated[int, Field(ge=0)]] = Field(
        default=[], description="Positions of centroids that are one value, repeated or not."
    )
    low: Finite | None = Field(
        default=None, description="Smallest value; null where there is none."
    )
    high: Finite | None = None
    values: Annotated[int, Field(ge=0)] = Field(description="Rows with a finite value.")
    missing: Annotated[int, Field(ge=0)] = Field(default=0, description="Rows without one.")

    @model_validator(mode="after")
    def _consistent(self) -> Digest:
        if len(self.means) != len(self.weights) or self.means != sorted(self.means):
            raise ValueError("a digest has ascending means and as many weights")
        if any(place >= len(self.means) for place in self.atoms):
            raise ValueError(
                f"a digest of {len(self.means)} centroids has no atom {self.atoms[-1]}"
            )
        if bool(self.means) != bool(self.values):
            raise ValueError("a digest has centroids where there are values, and only there")
        low, high = self.low, self.high
        if self.means and (
            low is None or high is None or low > self.means[0] or high < self.means[-1]
        ):
            raise ValueError("a digest's low and high enclose its means")
        return self


class Reference(_Part):
    """What a reference sample says beside its grid: what drift compares windows with."""

    x_digests: list[Digest] = Field(description="Of the columns, in the order of the grid's edges.")
    y_digests: list[Digest] = Field(description="Of the outputs.")
    scores: list[list[Annotated[float, Field(ge=0, le=1)]]] = Field(
        description="CIR, (outputs, columns)."
    )
    stderr: list[list[float | None]] = Field(description="Of the scores, same shape.")
    groups: dict[str, list[Annotated[float, Field(ge=0, le=1)]]] = Field(
        default={}, description="CIR of each group of columns, per output."
    )


class Baseline(_Part):
    """A reference sample, as a training table gives it: its grid, and what windows are compared with."""

    x_edges: list[list[float]] = Field(description="(columns, cells - 1), ascending per column.")
    y_edges: list[list[float]] = Field(description="(outputs, cells - 1), ascending per output.")
    rows: Annotated[int, Field(ge=0)] = Field(description="Rows that the baseline was taken from.")
    reference: Reference | None = Field(
        default=None,
        description="Without one, windows are compared with the first full window.",
    )

    @model_validator(mode="after")
    def _one_shape(self) -> Baseline:
        if (found := self.reference) is None:
            return self
        columns, outputs = len(self.x_edges), len(self.y_edges)
        shape = [outputs, columns]
        if [len(found.y_digests), len(found.x_digests)] != shape:
            raise ValueError(
                f"digests of {len(found.x_digests)} columns and {len(found.y_digests)} outputs beside "
                f"edges of {columns} and {outputs}"
            )
        for what, table in (("scores", found.scores), ("stderr", found.stderr)):
            if len(table) != outputs or any(len(row) != columns for row in table):
                raise ValueError(f"{what} must be ({outputs}, {columns}), as the edges are")
        wrong = [name for name, row in found.groups.items() if len(row) != outputs]
        if wrong:
            raise ValueError(f"group {wrong[0]!r} needs {outputs} scores, one per output")
        return self


class InformationSchedule(_Part):
    """``mcir-m`` again and again, of the newest final window's sampled rows."""

    every_seconds: Annotated[float, Field(ge=1, le=366 * 86400)]
    window_seconds: PositiveSeconds | None = Field(
        default=None, description="Width of one of the card's windows; null: the widest."
    )
    rows: Annotated[int, Field(ge=4, le=100_000)] = Field(
        default=2000, description="At most so many of the window's rows."
    )
    output: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="Null: all outputs as one."
    )
    parameters: dict[str, Any] = Field(default={}, description="Of the method, as in a request.")
    reuse_below: Annotated[float, Field(ge=0, le=2)] = Field(
        default=0.1,
        description="Neighbourhoods are kept while no correlation has changed by more; 0: never kept.",
    )


class ModelCard(Message):
    """What a model's owner declares. Everything but the name has a default or can be learnt."""

    SCHEMA: ClassVar[str] = "attributary.model/1"

    model: ModelName
    features: list[Feature] = Field(default=[], max_length=5000)
    outputs: list[str] = Field(default=[], max_length=1000)
    strict: bool = Field(default=False, description="Reject rows with missing or extra features.")
    pane_seconds: PositiveSeconds = DEFAULT_PANE_SECONDS
    allowed_lateness_seconds: Annotated[float, Field(ge=0, le=10 * 366 * 86400)] = 60.0
    windows: list[WindowSpec] = Field(default=list(DEFAULT_WINDOWS), min_length=1, max_length=16)
    samples: Annotated[int, Field(ge=0, le=10_000)] = Field(
        default=0, description="Rows kept per pane with their raw values; 0 keeps none."
    )
    artefact: Artefact | None = None
    baseline: Baseline | None = None
    unique_information: InformationSchedule | None = Field(
        default=None, description="When request workers score features by themselves; null: never."
    )

    @model_validator(mode="after")
    def _consistent(self) -> ModelCard:
        names = [feature.name for feature in self.features]
        for what, listed in (("features", names), ("outputs", self.outputs)):
            if len(set(listed)) != len(listed):
                twice = sorted({name for name in listed if listed.count(name) > 1})
                raise ValueError(f"{what} named twice: {', '.join(twice)}")
        for window in self.windows:
            for name in ("seconds", "hop_seconds"):
                seconds = getattr(window, name, self.pane_seconds)
                if round(seconds * 1000) % round(self.pane_seconds * 1000):
                    raise ValueError(
                        f"{window.kind} window: {name}={seconds:g} is not a multiple of "
                        f"pane_seconds={self.pane_seconds:g}"
                    )
            if isinstance(window, Hopping) and round(window.seconds * 1000) % round(
                window.hop_seconds * 1000
            ):
                raise ValueError(
                    f"hopping window: seconds={window.seconds:g} is not a multiple of "
                    f"hop_seconds={window.hop_seconds:g}"
                )
        self._check_schedule()
        return self

    def _check_schedule(self) -> None:
        schedule = self.unique_information
        if schedule is None:
            return
        if not self.samples:
            raise ValueError("unique_information scores sampled rows: give samples above 0")
        widths = {w.seconds for w in self.windows if isinstance(w, Tumbling | Hopping)}
        if not widths or schedule.window_seconds not in {None, *widths}:
            raise ValueError(
                "unique_information needs a tumbling or hopping window of the card"
                + ("" if not widths else f": window_seconds is one of {sorted(widths)}, or null")
            )
