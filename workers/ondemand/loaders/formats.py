"""Which format an artefact has, and its loader."""

from __future__ import annotations

import importlib
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from attributary.schemas.card import Artefact, ModelFormat
from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.loaders.loaded import LoadedModel, Source, not_loadable
from attributary.workers.ondemand.loaders.sniff import ALTERNATIVES, refuse_code

_SUFFIXES: dict[str, ModelFormat] = {
    ".json": "xgboost",
    ".ubj": "xgboost",
    ".skops": "skops",
    ".onnx": "onnx",
    ".safetensors": "safetensors",
    ".pt2": "torch-export",
    ".pt": "torchscript",
    ".ts": "torchscript",
    ".torchscript": "torchscript",
}
_PICKLES = (".pkl", ".pickle", ".joblib", ".sav", ".dill", ".cloudpickle", ".pth", ".ckpt")
_MODULES: dict[ModelFormat, str] = {
    "xgboost": "xgboost",
    "skops": "skops",
    "onnx": "onnx",
    "safetensors": "safetensors",
    "torch-export": "torch_programs",
    "torchscript": "torch_programs",
    "server": "server",
}
EXECUTABLE: tuple[ModelFormat, ...] = ("torch-export", "torchscript")


def format_of(artefact: Artefact) -> ModelFormat:
    """Return the artefact's format, as the card or the end of its name says.

    RequestError: artefact_refused (a pickle by its name), model_not_loadable (no known name).
    """
    if artefact.uri.startswith(("http://", "https://")):
        return "server"
    if artefact.format is not None and artefact.format != "server":
        return artefact.format
    suffix = PurePosixPath(urlsplit(artefact.uri).path).suffix.lower()
    if suffix in _PICKLES:
        raise RequestError(
            ErrorCode.ARTEFACT_REFUSED,
            f"artefact {artefact.uri!r} is refused: {suffix} files are pickles, which run code when "
            f"they are opened; {ALTERNATIVES}",
        )
    if suffix not in _SUFFIXES:
        raise not_loadable(
            f"artefact {artefact.uri!r}: its name does not tell a format; name it in the artefact's "
            f"'format' ({', '.join(_MODULES)}) or end it in one of {', '.join(_SUFFIXES)}"
        )
    return _SUFFIXES[suffix]


def load(source: Source) -> LoadedModel:
    """Open the model. RequestError: artefact_refused, model_not_loadable, limit_exceeded."""
    if source.format != "server":
        refuse_code(source)
    try:
        loader = importlib.import_module(f"{__package__}.{_MODULES[source.format]}")
    except ImportError as error:
        raise not_loadable(
            f"the format {source.format} needs {error.name}: pip install 'attributary[ondemand]'"
        ) from error
    loaded: LoadedModel = loader.load(source)
    return loaded
