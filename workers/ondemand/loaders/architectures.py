"""The code that weights from a safetensors file go into: networks defined here or by installed packages.

A package adds its own under the entry point group ``attributary.architectures``: the entry's name is the
architecture's, its object an ``Architecture``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import nn

from attributary.workers.ondemand.loaders.torch_module import Inputs

GROUP = "attributary.architectures"

Width = Annotated[int, Field(ge=1, le=65_536)]
Activation = Literal["relu", "gelu", "tanh", "silu", "softplus"]
_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "tanh": nn.Tanh,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
}


class HyperParameters(BaseModel):
    """What an architecture is built from; the artefact's metadata holds it as JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True)
class Architecture:
    """A network in code. ``features``: the columns that one with these parameters takes, if fixed."""

    parameters: type[HyperParameters]
    build: Callable[[Any], nn.Module]
    inputs: Inputs = "numeric"
    features: Callable[[Any], int | None] = lambda parameters: None


class MlpParameters(HyperParameters):
    """A multilayer perceptron."""

    features: Width
    hidden: Annotated[list[Width], Field(max_length=64)]
    outputs: Width = 1
    activation: Activation = "relu"
    normalise: bool = Field(default=False, description="(x - mean) / scale, both in the file.")


class Mlp(nn.Module):
    """Linear layers with an activation between them; weights ``layers.0.weight``, ``layers.1.weight``, …"""

    mean: torch.Tensor
    scale: torch.Tensor

    def __init__(self, parameters: MlpParameters) -> None:
        super().__init__()
        widths = [parameters.features, *parameters.hidden, parameters.outputs]
        self.layers = nn.ModuleList(
            nn.Linear(before, after) for before, after in itertools.pairwise(widths)
        )
        self.activation = _ACTIVATIONS[parameters.activation]()
        self.normalise = parameters.normalise
        if parameters.normalise:
            self.register_buffer("mean", torch.zeros(parameters.features))
            self.register_buffer("scale", torch.ones(parameters.features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return (n, outputs) of x (n, features)."""
        if self.normalise:
            x = (x - self.mean) / self.scale
        *inner, last = self.layers
        for layer in inner:
            x = self.activation(layer(x))
        answer: torch.Tensor = last(x)
        return answer


class TransformerParameters(HyperParameters):
    """A transformer encoder that classifies sequences of tokens."""

    tokens: Annotated[int, Field(ge=2, le=2_000_000, description="Size of the vocabulary.")]
    positions: Annotated[int, Field(ge=1, le=65_536, description="The longest sequence.")]
    width: Width
    heads: Annotated[int, Field(ge=1, le=256)]
    layers: Annotated[int, Field(ge=1, le=128)]
    feedforward: Width
    outputs: Width = 2
    padding: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="The token that is not attended to."
    )
    pool: Literal["mean", "first"] = "mean"

    @model_validator(mode="after")
    def _divisible(self) -> TransformerParameters:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of heads {self.heads}")
        return self


class TransformerClassifier(nn.Module):
    """Token and learnt position embeddings, pre-norm encoder layers, pooled, one linear layer.

    Weights: ``token.weight``, ``position.weight``, ``encoder.layers.N.…`` (torch's names), ``norm.…``,
    ``classify.…``.
    """

    def __init__(self, parameters: TransformerParameters) -> None:
        super().__init__()
        self.padding = parameters.padding
        self.pool = parameters.pool
        self.token = nn.Embedding(parameters.tokens, parameters.width)
        self.position = nn.Embedding(parameters.positions, parameters.width)
        layer = nn.TransformerEncoderLayer(
            parameters.width,
            parameters.heads,
            parameters.feedforward,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(layer, parameters.layers, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(parameters.width)
        self.classify = nn.Linear(parameters.width, parameters.outputs)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, outputs) of token ids (n, length)."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(places)
        hidden = None if self.padding is None else tokens == self.padding
        if hidden is not None:
            hidden = hidden & ~hidden.all(1, keepdim=True)  # a row of padding alone sees all of it
        x = self.norm(self.encoder(x, src_key_padding_mask=hidden))
        if self.pool == "first":
            pooled = x[:, 0]
        elif hidden is None:
            pooled = x.mean(1)
        else:
            seen = (~hidden).to(x.dtype)[:, :, None]
            pooled = (x * seen).sum(1) / seen.sum(1)
        answer: torch.Tensor = self.classify(pooled)
        return answer


BUILT_IN: dict[str, Architecture] = {
    "mlp": Architecture(MlpParameters, Mlp, features=lambda parameters: int(parameters.features)),
    "transformer-classifier": Architecture(TransformerParameters, TransformerClassifier, "tokens"),
}


def find(name: str) -> Architecture | None:
    """Return the architecture of this name, or None. Built-in ones come first."""
    if name in BUILT_IN:
        return BUILT_IN[name]
    for entry in entry_points(group=GROUP, name=name):
        architecture = entry.load()
        if isinstance(architecture, Architecture):
            return architecture
    return None


def names() -> list[str]:
    """Return the names of all architectures."""
    return sorted({*BUILT_IN, *(entry.name for entry in entry_points(group=GROUP))})
