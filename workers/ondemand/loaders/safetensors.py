"""Weights from a safetensors file, in an architecture whose code is installed here."""

from __future__ import annotations

from typing import Any

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open

from attributary.workers.ondemand.loaders.architectures import (
    Architecture,
    HyperParameters,
    find,
    names,
)
from attributary.workers.ondemand.loaders.loaded import LoadedModel, Source, not_loadable
from attributary.workers.ondemand.loaders.torch_module import adapt, device_of, dtype_of

_NAMED = 5


def load(source: Source) -> LoadedModel:
    """Open the weights. The file's metadata names ``architecture`` and, as JSON, its ``parameters``."""
    device = device_of(source)
    try:
        with safe_open(source.path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise not_loadable(f"artefact {source.uri!r} is no safetensors file: {error}") from error
    architecture, parameters = _described(source, metadata)
    with torch.device("meta"):
        _compare(source, architecture.build(parameters).state_dict(), tensors)
    dtype = dtype_of(tensors.values())
    # Only now: the shapes are the file's own, so this is no larger than the file.
    module = architecture.build(parameters).to(dtype)
    module.load_state_dict(tensors)
    module.to(device).eval().requires_grad_(False)
    return adapt(
        module,
        source,
        device,
        dtype=dtype,
        inputs=architecture.inputs,
        features=architecture.features(parameters),
    )


def _described(source: Source, metadata: dict[str, str]) -> tuple[Architecture, HyperParameters]:
    name = metadata.get("architecture")
    if name is None:
        raise not_loadable(
            f"artefact {source.uri!r} does not say its architecture: save it with metadata "
            '{"architecture": …, "parameters": …} (docs/models.md)'
        )
    architecture = find(name)
    if architecture is None:
        raise not_loadable(
            f"artefact {source.uri!r} needs the architecture {name!r}; installed are "
            f"{', '.join(names())}"
        )
    try:
        return architecture, architecture.parameters.model_validate_json(
            metadata.get("parameters", "{}")
        )
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise not_loadable(
            f"artefact {source.uri!r}: parameters of {name!r}: {where + ': ' if where else ''}{first['msg']}"
        ) from error


def _compare(source: Source, expected: dict[str, Any], found: dict[str, torch.Tensor]) -> None:
    missing, extra = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if missing or extra:
        raise not_loadable(
            f"artefact {source.uri!r} does not fit its architecture: missing {missing[:_NAMED]}, "
            f"unknown {extra[:_NAMED]}"
        )
    for name, tensor in expected.items():
        if tensor.shape != found[name].shape:
            raise not_loadable(
                f"artefact {source.uri!r}: {name} has shape {tuple(found[name].shape)}, its "
                f"architecture's has {tuple(tensor.shape)}"
            )
