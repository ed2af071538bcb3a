"""Files that are cut short, changed or something else than their names say: errors, never a surprise."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import pickle
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from models import load_here, open_file, raises

from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.errors import RequestError

pytestmark = pytest.mark.timeout(180)

_WHY = "needs the extra 'ondemand'"
X = np.random.default_rng(0).normal(size=(50, 4))


class _Trap:
    """Runs code when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


def _xgboost(path: Path) -> None:
    xgboost = pytest.importorskip("xgboost", reason=_WHY)
    data = xgboost.DMatrix(X, X[:, 0] - X[:, 1])
    xgboost.train({"max_depth": 3}, data, 5).save_model(path)


def _skops(path: Path) -> None:
    pytest.importorskip("skops", reason=_WHY)
    from sklearn.linear_model import LinearRegression
    from skops.io import dump

    dump(LinearRegression().fit(X, X[:, 0]), path)


def _onnx(path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason=_WHY)
    pytest.importorskip("onnxruntime", reason=_WHY)
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "W"], ["y"])],
        "g",
        [info("x", onnx.TensorProto.DOUBLE, ["n", 4])],
        [info("y", onnx.TensorProto.DOUBLE, ["n", 8])],
        [onnx.numpy_helper.from_array(np.ones((4, 8)), "W")],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


def _safetensors(path: Path) -> None:
    pytest.importorskip("torch", reason=_WHY)
    pytest.importorskip("safetensors", reason=_WHY)
    from safetensors.torch import save_file

    from attributary.workers.ondemand.loaders.architectures import Mlp, MlpParameters

    parameters = MlpParameters(features=4, hidden=[4])
    metadata = {"architecture": "mlp", "parameters": parameters.model_dump_json()}
    save_file(Mlp(parameters).state_dict(), path, metadata)


_FORMATS: list[tuple[str, Callable[[Path], None], int]] = [
    # Bits to change: a process each, and torch's takes seconds to start.
    ("m.json", _xgboost, 6),
    ("m.ubj", _xgboost, 6),
    ("m.onnx", _onnx, 6),
    ("m.skops", _skops, 2),
    ("m.safetensors", _safetensors, 1),
]


@pytest.mark.parametrize(("name", "save", "flips"), _FORMATS, ids=[f[0] for f in _FORMATS])
def test_a_damaged_file_is_an_error_or_a_model_that_answers(tmp_path, name, save, flips):
    """A parser may crash or hang on one: in the model's process. A flipped bit of a weight is no damage that
    anybody but the hash can see."""
    path = tmp_path / name
    save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with raises(ErrorCode.MODEL_NOT_LOADABLE):
        open_file(path, {"load_seconds": 60, "call_seconds": 5})
    rng = np.random.default_rng(len(name))
    for position in rng.integers(0, len(whole), flips):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << rng.integers(8)
        path.write_bytes(flipped)
        with (
            contextlib.suppress(RequestError),
            open_file(path, {"load_seconds": 60, "call_seconds": 5}) as model,
        ):
            assert model(X).shape[0] == 50


@pytest.mark.parametrize("name", ["m.ubj", "m.json", "m.onnx", "m.skops", "m.safetensors", "m.pt"])
def test_pickles_under_other_names_are_refused_and_never_run(tmp_path, name):
    trap = tmp_path / "sprung"
    path = tmp_path / name
    held = {"executable_sha256": ()}
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        path.write_bytes(pickle.dumps(_Trap(trap), protocol))
        with raises(ErrorCode.ARTEFACT_REFUSED):
            if name == "m.pt":
                open_file(path, held)
            else:
                load_here(path)
    assert not trap.exists()


def test_what_a_refusal_says_is_what_the_file_is(tmp_path):
    trapped = pickle.dumps(_Trap(tmp_path / "sprung"))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("archive/data.pkl", trapped)
        file.writestr("archive/version", "3")
    inside = io.BytesIO()
    with zipfile.ZipFile(inside, "w") as file:
        file.writestr("schema.json", "{}")
        file.writestr("model.PKL", trapped)
    path = tmp_path / "m.skops"
    for data, said in [
        (trapped, "is a pickle"),
        (gzip.compress(trapped), "as joblib writes"),
        (zlib.compress(trapped), "as joblib writes"),
        (bz2.compress(trapped), "as joblib writes"),
        (lzma.compress(trapped), "as joblib writes"),
        (archive.getvalue(), "torch.save"),
        (inside.getvalue(), "is a pickle"),
    ]:
        path.write_bytes(data)
        with raises(ErrorCode.ARTEFACT_REFUSED, said, "skops.io.dump", "save_model", "safetensors"):
            load_here(path)
    assert not (tmp_path / "sprung").exists()


def test_pickles_saved_by_torch_and_joblib_are_refused(tmp_path):
    torch = pytest.importorskip("torch", reason=_WHY)
    joblib = pytest.importorskip("joblib", reason=_WHY)
    path = tmp_path / "m.pt"
    torch.save(torch.nn.Linear(2, 1).state_dict(), path)
    with raises(ErrorCode.ARTEFACT_REFUSED, "torch.save"):
        load_here(path)
    for compress in (0, 3, ("xz", 3)):
        path = tmp_path / "m.skops"
        joblib.dump({"weights": np.ones(1000)}, path, compress=compress)
        with raises(ErrorCode.ARTEFACT_REFUSED, "runs code" if not compress else "joblib"):
            load_here(path)


def test_a_safetensors_header_that_begins_like_something_else_is_not_taken_for_it(tmp_path):
    """Its first bytes are a length: 376 is how zlib begins, 93 how lzma does, 78 a pickle's None."""
    pytest.importorskip("torch", reason=_WHY)
    pytest.importorskip("safetensors", reason=_WHY)
    path = tmp_path / "m.safetensors"
    for length in (376, 93, 78, 46, 0x8B1F):
        header = json.dumps({"__metadata__": {"architecture": "none"}}).encode()
        path.write_bytes(length.to_bytes(8, "little") + header.ljust(length))
        with raises(ErrorCode.MODEL_NOT_LOADABLE, "'none'" if length != 46 else "safetensors"):
            load_here(path)


def test_an_archive_that_unpacks_to_more_than_allowed_is_not_unpacked(tmp_path):
    path = tmp_path / "m.skops"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("schema.json", "{}")
        file.writestr("weights.npy", bytes(64 * 2**20))
    assert path.stat().st_size < 2**20
    with raises(ErrorCode.LIMIT_EXCEEDED, "67108866 bytes", "artefact_bytes"):
        open_file(path, {"artefact_bytes": 2**20})


def test_a_graph_that_asks_for_more_memory_than_allowed_is_an_error(tmp_path):
    onnx = pytest.importorskip("onnx", reason=_WHY)
    pytest.importorskip("onnxruntime", reason=_WHY)
    info = onnx.helper.make_tensor_value_info
    shape = onnx.numpy_helper.from_array(np.array([2**20, 2**13]), "shape")
    nodes = [
        onnx.helper.make_node("ConstantOfShape", ["shape"], ["large"]),
        onnx.helper.make_node("ReduceSum", ["large"], ["total"], keepdims=0),
        onnx.helper.make_node("Add", ["x", "total"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [info("x", onnx.TensorProto.FLOAT, ["n", 4])],
        [info("y", onnx.TensorProto.FLOAT, ["n", 4])],
        [shape],
    )
    path = tmp_path / "m.onnx"
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    with pytest.raises(RequestError) as caught, open_file(path, {"memory_bytes": 2**30}) as model:
        model(X)
    assert caught.value.code in {
        ErrorCode.LIMIT_EXCEEDED,
        ErrorCode.MODEL_NOT_LOADABLE,
        ErrorCode.MODEL_FAILED,
    }


@pytest.mark.parametrize("name", ["m.ubj", "m.onnx", "m.skops", "m.safetensors"])
def test_empty_and_meaningless_files_are_no_models(tmp_path, name):
    path = tmp_path / name
    for data in (b"", b"{}", b"\0" * 100, "ü".encode() * 50, b"PK\x03\x04" + bytes(50)):
        path.write_bytes(data)
        with raises(ErrorCode.MODEL_NOT_LOADABLE):
            load_here(path)
