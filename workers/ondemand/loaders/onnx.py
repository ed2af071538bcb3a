"""ONNX graphs, run by onnxruntime: all in one file, standard operators only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from attributary.schemas.explanation import ErrorCode
from attributary.workers.explainers.precisions import Precision
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.loaders.links import log_odds
from attributary.workers.ondemand.loaders.loaded import (
    Floats,
    LoadedModel,
    Source,
    check_names,
    not_loadable,
)

_TYPES: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_,
}
_PROBABILITIES = ("probabilities", "output_probability", "probability", "probas")


def load(source: Source) -> LoadedModel:
    """Open a graph with one input (batch, features), or one input (batch, 1) per feature.

    Head: the name of an output; by default the only one, or a classifier's probabilities, which become
    log-odds unless the link is "identity".
    """
    data = source.read()
    graph = _parse(source, data)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = source.threads
    options.inter_op_num_threads = 1
    options.use_deterministic_compute = True
    options.log_severity_level = 3
    providers: list[Any] = ["CPUExecutionProvider"]
    on_gpu = source.device != "cpu" and (
        "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    )
    if on_gpu:
        device = int(source.device.partition(":")[2] or 0)
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": device}))
    try:
        session = onnxruntime.InferenceSession(data, options, providers=providers)
    except Exception as error:  # its exceptions have no common type
        raise not_loadable(
            f"onnxruntime cannot open artefact {source.uri!r}: {str(error).strip()}"
        ) from error
    feed, features, precision, names = _inputs(source, session.get_inputs())
    check_names(source, names)
    head, odds = _head(source, session.get_outputs())

    def predict(X: Floats) -> npt.NDArray[Any]:
        Y = _array(session.run([head], feed(X))[0])
        return log_odds(Y) if odds else Y

    trees = any(node.op_type.startswith("TreeEnsemble") for node in _nodes([graph.graph]))
    return LoadedModel(
        predict=predict,
        precision=precision,
        piecewise_constant=trees
        if source.piecewise_constant is None
        else source.piecewise_constant,
        features=features,
        device=source.device if on_gpu else "cpu",
    )


def _parse(source: Source, data: bytes) -> Any:
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's
        raise not_loadable(f"artefact {source.uri!r} is no ONNX model: {error}") from error
    if not model.graph.node:
        raise not_loadable(f"artefact {source.uri!r} is no ONNX model: its graph is empty")
    if any(tensor.external_data or tensor.data_location for tensor in _tensors(model)):
        raise RequestError(
            ErrorCode.ARTEFACT_REFUSED,
            f"artefact {source.uri!r} is refused: it keeps data in other files, which its sha256 does "
            "not cover; save it as one file (onnx.save_model(..., save_as_external_data=False))",
        )
    return model


def _tensors(message: Any) -> Iterator[Any]:
    """Walk to every tensor, wherever in the model it is: attributes, subgraphs, functions, quantisation."""
    if isinstance(message, onnx.TensorProto):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if isinstance(value, Sequence) else [value]:
                yield from _tensors(inner)


def _nodes(graphs: Iterable[Any]) -> Iterator[Any]:
    for graph in graphs:
        for node in graph.node:
            yield node
            for attribute in node.attribute:
                yield from _nodes([attribute.g] if attribute.HasField("g") else attribute.graphs)


def _inputs(
    source: Source, inputs: list[Any]
) -> tuple[Any, int | None, Precision, list[str] | None]:
    """Return what makes the inputs of an array, the number of features, the precision, and names."""
    for given in inputs:
        if given.type not in _TYPES:
            raise not_loadable(
                f"the model's input {given.name!r} is a {given.type}, expected numbers"
            )
    types = [_TYPES[given.type] for given in inputs]
    precision: Precision = "float64" if all(t is np.float64 for t in types) else "float32"
    if np.float16 in types:
        precision = "float16"
    if len(inputs) == 1:
        name, kind, shape = inputs[0].name, types[0], inputs[0].shape
        if len(shape) != 2:
            raise not_loadable(f"the model's input {name!r} has shape {shape}, expected two axes")
        if isinstance(shape[0], int):
            raise not_loadable(
                f"the model takes batches of {shape[0]} only: export it with a dynamic first axis"
            )
        features = shape[1] if isinstance(shape[1], int) else None
        return (lambda X: {name: X.astype(kind, copy=False)}), features, precision, None
    if any(len(given.shape) != 2 or given.shape[1] not in (1, None) for given in inputs):
        raise not_loadable(
            "the model has several inputs, expected one, or one column for each feature"
        )
    columns = [(index, given.name, types[index]) for index, given in enumerate(inputs)]

    def feed(X: Floats) -> dict[str, npt.NDArray[Any]]:
        return {name: X[:, [index]].astype(kind, copy=False) for index, name, kind in columns}

    return feed, len(inputs), precision, [given.name for given in inputs]


def _head(source: Source, outputs: list[Any]) -> tuple[str, bool]:
    """Return the output's name, and whether it becomes log-odds."""
    names = [output.name for output in outputs]
    if source.head is not None and source.head not in names:
        raise not_loadable(
            f"the artefact's head {source.head!r} is not an output: the model has {', '.join(names)}"
        )
    probable = [output.name for output in outputs if _is_probabilities(output)]
    head = source.head or (names[0] if len(names) == 1 else None)
    if head is None:
        if len(probable) != 1:
            raise not_loadable(
                f"the model has the outputs {', '.join(names)}: name one in the artefact's 'head'"
            )
        head = probable[0]
    link = source.link or ("log-odds" if head in probable else "identity")
    return head, link == "log-odds"


def _is_probabilities(output: Any) -> bool:
    return output.type.startswith("seq(map(") or output.name in _PROBABILITIES


def _array(Y: Any) -> npt.NDArray[Any]:
    """Return an output as an array; a classifier's list of {label: probability} too."""
    if isinstance(Y, list) and Y and isinstance(Y[0], dict):
        labels = list(Y[0])
        return np.array([[row[label] for label in labels] for row in Y], np.float64)
    return np.asarray(Y)
