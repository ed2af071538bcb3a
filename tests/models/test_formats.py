"""Every format, opened in its process, against the library itself in this one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import card_of, load_here, open_file, raises

from attributary.schemas.explanation import ErrorCode
from attributary.workers.explainers.t_explainer import t_explain
from attributary.workers.ondemand.models import open_model
from attributary.workers.ondemand.policy import LoadPolicy

pytestmark = pytest.mark.timeout(120)

_WHY = "needs the extra 'ondemand'"


def _data(seed: int = 0, rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 4))
    return X, X[:, 0] - 2 * X[:, 1] * (X[:, 2] > 0) + 0.1 * rng.normal(size=rows)


def _logit(p: np.ndarray) -> np.ndarray:
    p = np.clip(p, 1e-6, 1 - 1e-6)
    return np.log(p / (1 - p))


class TestXGBoost:
    @pytest.fixture(scope="class")
    @staticmethod
    def xgboost():
        return pytest.importorskip("xgboost", reason=_WHY)

    def test_a_regression(self, xgboost, tmp_path):
        X, y = _data()
        fitted = xgboost.XGBRegressor(n_estimators=8, max_depth=3).fit(X, y)
        fitted.save_model(tmp_path / "m.json")
        with open_file(tmp_path / "m.json") as model:
            assert (model(X) == fitted.predict(X)).all()
            assert (model.precision, model.piecewise_constant) == ("float32", True)
            assert (model.features, model.outputs, model.gradient) == (4, 1, None)

    def test_a_binary_classifier_gives_its_margin_or_on_demand_the_probability(
        self, xgboost, tmp_path
    ):
        X, y = _data()
        fitted = xgboost.XGBClassifier(n_estimators=8, max_depth=3).fit(X, y > 0)
        fitted.save_model(tmp_path / "m.ubj")
        margin = fitted.predict(X, output_margin=True)
        with open_file(tmp_path / "m.ubj") as model:
            assert (model(X) == margin).all()
        with open_file(tmp_path / "m.ubj", head="prediction") as model:
            np.testing.assert_allclose(model(X), 1 / (1 + np.exp(-margin)), rtol=1e-5)
        with raises(ErrorCode.MODEL_NOT_LOADABLE, "margin, prediction"):
            load_here(tmp_path / "m.ubj", head="leaf")

    def test_classes_stop_early_and_missing_values(self, xgboost, tmp_path):
        X, y = _data()
        X[::7, 2] = np.nan
        classes = np.digitize(y, [-1.0, 1.0])
        fitted = xgboost.XGBClassifier(n_estimators=200, max_depth=2, early_stopping_rounds=2)
        fitted.fit(X, classes, eval_set=[_data(1)[:1] + (np.digitize(_data(1)[1], [-1, 1]),)])
        assert fitted.best_iteration < 190
        fitted.save_model(tmp_path / "m.ubj")
        with open_file(tmp_path / "m.ubj") as model:
            assert (model(X) == fitted.predict(X, output_margin=True)).all()
            assert model.outputs == 3

    def test_a_linear_booster_is_not_piecewise_constant(self, xgboost, tmp_path):
        X, y = _data()
        fitted = xgboost.train({"booster": "gblinear"}, xgboost.DMatrix(X, y), 5)
        fitted.save_model(tmp_path / "m.ubj")
        with open_file(tmp_path / "m.ubj") as model:
            assert (model(X) == fitted.predict(xgboost.DMatrix(X))).all()
            assert not model.piecewise_constant

    def test_features_in_another_order_than_the_cards_are_refused(self, xgboost, tmp_path):
        X, y = _data()
        data = xgboost.DMatrix(X, y, feature_names=["a", "b", "c", "d"])
        xgboost.train({}, data, 2).save_model(tmp_path / "m.ubj")
        policy = LoadPolicy(roots=(tmp_path,))
        with raises(ErrorCode.MODEL_NOT_LOADABLE, "order a, b, c, d", "b, a, c, d"):
            open_model(card_of(tmp_path / "m.ubj", ("b", "a", "c", "d")), policy)
        with open_model(card_of(tmp_path / "m.ubj", ("w", "x", "y", "z")), policy) as model:
            with raises(ErrorCode.BAD_REQUEST, "takes 4 features, it was given 3"):
                model(X[:, :3])
            assert model(X).shape == (300,)


class TestSkops:
    @pytest.fixture(scope="class")
    @staticmethod
    def skops():
        pytest.importorskip("sklearn", reason=_WHY)
        return pytest.importorskip("skops.io", reason=_WHY)

    def test_a_pipeline_with_a_linear_classifier_gives_its_decision_function(self, skops, tmp_path):
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        X, y = _data()
        fitted = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y > 0)
        skops.dump(fitted, tmp_path / "m.skops")
        with open_file(tmp_path / "m.skops") as model:
            assert (model(X) == fitted.decision_function(X)).all()
            assert (model.precision, model.piecewise_constant) == ("float64", False)
            assert model.features == 4

    def test_a_forest_needs_trust_and_gives_log_odds(self, skops, tmp_path):
        from sklearn.ensemble import RandomForestClassifier

        X, y = _data()
        classes = np.digitize(y, [-1.0, 1.0])
        fitted = RandomForestClassifier(20, max_depth=4, random_state=0).fit(X, classes)
        path = tmp_path / "m.skops"
        skops.dump(fitted, path)
        with raises(ErrorCode.ARTEFACT_REFUSED, "sklearn.tree._tree.Tree", "skops_trusted"):
            load_here(path)
        with open_file(path, {"skops_trusted": ("sklearn.tree._tree.Tree",)}) as model:
            np.testing.assert_allclose(model(X), _logit(fitted.predict_proba(X)), atol=1e-9)
            assert model.piecewise_constant
            assert model.outputs == 3

    def test_a_model_fitted_on_a_table_gets_one_and_a_head_is_chosen(self, skops, tmp_path):
        pandas = pytest.importorskip("pandas")
        from sklearn.compose import make_column_transformer
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.pipeline import make_pipeline

        X, y = _data()
        table = pandas.DataFrame(X, columns=list("abcd"))
        chosen = make_column_transformer(("passthrough", ["a", "b", "c"]))
        fitted = make_pipeline(chosen, HistGradientBoostingClassifier(max_iter=5)).fit(table, y > 0)
        path = tmp_path / "m.skops"
        skops.dump(fitted, path)
        trust = {"skops_trusted": tuple(skops.get_untrusted_types(file=path))}
        with open_file(path, trust, head="predict_proba", link="identity") as model:
            assert (model(X) == fitted.predict_proba(table)).all()
            assert model.piecewise_constant

    def test_what_is_no_estimator_is_refused(self, skops, tmp_path):
        skops.dump({"weights": [1.0]}, tmp_path / "m.skops")
        with raises(ErrorCode.MODEL_NOT_LOADABLE, "dict", "estimator"):
            load_here(tmp_path / "m.skops")


class TestOnnx:
    @pytest.fixture(scope="class")
    @staticmethod
    def onnx():
        pytest.importorskip("onnxruntime", reason=_WHY)
        return pytest.importorskip("onnx", reason=_WHY)

    @staticmethod
    def _save(onnx, path: Path, nodes, inputs, outputs, initial=(), **more) -> Path:
        helper = onnx.helper
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info(*given) for given in inputs],
            outputs,
            list(initial),
        )
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=8, **more)
        onnx.save(model, path)
        return path

    @staticmethod
    def _out(onnx, name, kind, shape):
        return onnx.helper.make_tensor_value_info(name, kind, shape)

    def test_half_precision(self, onnx, tmp_path):
        half = onnx.TensorProto.FLOAT16
        path = self._save(
            onnx,
            tmp_path / "m.onnx",
            [onnx.helper.make_node("Neg", ["x"], ["y"])],
            [("x", half, ["n", 4])],
            [self._out(onnx, "y", half, ["n", 4])],
        )
        loaded = load_here(path)
        assert loaded.precision == "float16"
        X, _ = _data()
        np.testing.assert_array_equal(loaded.predict(X), -X.astype(np.float16))

    def test_double_precision_and_several_outputs(self, onnx, tmp_path):
        X, _ = _data()
        W = np.arange(8.0).reshape(4, 2)
        double = onnx.TensorProto.DOUBLE
        path = self._save(
            onnx,
            tmp_path / "m.onnx",
            [
                onnx.helper.make_node("MatMul", ["x", "W"], ["two"]),
                onnx.helper.make_node("ReduceSum", ["two", "axis"], ["one"], keepdims=1),
            ],
            [("x", double, ["n", 4])],
            [self._out(onnx, "one", double, ["n", 1]), self._out(onnx, "two", double, ["n", 2])],
            [
                onnx.numpy_helper.from_array(W, "W"),
                onnx.numpy_helper.from_array(np.array([1]), "axis"),
            ],
        )
        with raises(ErrorCode.MODEL_NOT_LOADABLE, "one, two", "'head'"):
            load_here(path)
        with open_file(path, head="two") as model:
            np.testing.assert_allclose(model(X), X @ W, rtol=1e-13)
            assert (model.precision, model.features, model.outputs) == ("float64", 4, 2)
            assert not model.piecewise_constant
        sums = load_here(path, head="one").predict(X)
        np.testing.assert_allclose(sums[:, 0], (X @ W).sum(1), rtol=1e-12)
        with raises(ErrorCode.MODEL_NOT_LOADABLE, "'three' is not an output"):
            load_here(path, head="three")

    def test_a_tree_classifier_with_a_map_gives_log_odds(self, onnx, tmp_path):
        """Two leaves at 0.5 of the first feature, as sklearn-onnx writes a stump: probabilities by class."""
        X, _ = _data()
        tree = onnx.helper.make_node(
            "TreeEnsembleClassifier",
            ["x"],
            ["label", "scores"],
            domain="ai.onnx.ml",
            nodes_treeids=[0, 0, 0],
            nodes_nodeids=[0, 1, 2],
            nodes_featureids=[0, 0, 0],
            nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
            nodes_values=[0.5, 0.0, 0.0],
            nodes_truenodeids=[1, 0, 0],
            nodes_falsenodeids=[2, 0, 0],
            nodes_missing_value_tracks_true=[0, 0, 0],
            nodes_hitrates=[1.0, 1.0, 1.0],
            class_treeids=[0, 0, 0, 0, 0, 0],
            class_nodeids=[1, 1, 1, 2, 2, 2],
            class_ids=[0, 1, 2, 0, 1, 2],
            class_weights=[0.7, 0.2, 0.1, 0.1, 0.3, 0.6],
            classlabels_int64s=[0, 1, 2],
            post_transform="NONE",
        )
        to_map = onnx.helper.make_node(
            "ZipMap",
            ["scores"],
            ["output_probability"],
            domain="ai.onnx.ml",
            classlabels_int64s=[0, 1, 2],
        )
        kinds = onnx.helper
        mapped = kinds.make_value_info(
            "output_probability",
            kinds.make_sequence_type_proto(
                kinds.make_map_type_proto(
                    onnx.TensorProto.INT64, kinds.make_tensor_type_proto(onnx.TensorProto.FLOAT, [])
                )
            ),
        )
        path = self._save(
            onnx,
            tmp_path / "m.onnx",
            [tree, to_map],
            [("x", onnx.TensorProto.FLOAT, ["n", 4])],
            [self._out(onnx, "label", onnx.TensorProto.INT64, ["n"]), mapped],
        )
        P = np.where(X[:, :1] <= 0.5, [[0.7, 0.2, 0.1]], [[0.1, 0.3, 0.6]])
        with open_file(path) as model:
            np.testing.assert_allclose(model(X), _logit(P), atol=1e-6)
            assert model.piecewise_constant
        np.testing.assert_allclose(load_here(path, link="identity").predict(X), P, atol=1e-7)

    def test_one_input_for_each_feature(self, onnx, tmp_path):
        X, _ = _data()
        kind = onnx.TensorProto.FLOAT
        path = self._save(
            onnx,
            tmp_path / "m.onnx",
            [onnx.helper.make_node("Sub", ["a", "b"], ["y"])],
            [("a", kind, ["n", 1]), ("b", kind, ["n", 1])],
            [self._out(onnx, "y", kind, ["n", 1])],
        )
        with open_file(path) as model:
            np.testing.assert_allclose(model(X[:, :2]), X[:, 0] - X[:, 1], atol=1e-6)
        with raises(ErrorCode.MODEL_NOT_LOADABLE, "order a, b"):
            open_model(card_of(path, ("b", "a")), LoadPolicy(roots=(tmp_path,)))

    def test_a_fixed_batch_and_a_third_axis_are_refused(self, onnx, tmp_path):
        kind = onnx.TensorProto.FLOAT
        node = onnx.helper.make_node("Relu", ["x"], ["y"])
        for shape, said in (([8, 4], "dynamic first axis"), (["n", 4, 4], "expected two axes")):
            path = self._save(
                onnx,
                tmp_path / "m.onnx",
                [node],
                [("x", kind, shape)],
                [self._out(onnx, "y", kind, shape)],
            )
            with raises(ErrorCode.MODEL_NOT_LOADABLE, said):
                load_here(path)

    @pytest.mark.parametrize("where", ["initializer", "subgraph"])
    def test_data_in_other_files_is_refused(self, onnx, tmp_path, where):
        """Else a model could read any file of the worker's, and its hash would not cover its weights."""
        (tmp_path / "secret").write_bytes(bytes(16))
        tensor = onnx.TensorProto(
            name="W", data_type=onnx.TensorProto.FLOAT, dims=[4], data_location=1
        )
        tensor.external_data.add(key="location", value="secret")
        kind = onnx.TensorProto.FLOAT
        out = self._out(onnx, "y", kind, ["n", 4])
        if where == "initializer":
            nodes, initial = [onnx.helper.make_node("Add", ["x", "W"], ["y"])], [tensor]
        else:
            inner = onnx.helper.make_graph(
                [onnx.helper.make_node("Add", ["x", "W"], ["z"])],
                "inner",
                [],
                [self._out(onnx, "z", kind, ["n", 4])],
                [tensor],
            )
            yes = onnx.numpy_helper.from_array(np.array(True), "yes")
            node = onnx.helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner)
            nodes, initial = [node], [yes]
        path = self._save(onnx, tmp_path / "m.onnx", nodes, [("x", kind, ["n", 4])], [out], initial)
        with raises(ErrorCode.ARTEFACT_REFUSED, "other files"):
            load_here(path)


class TestTorch:
    @pytest.fixture(scope="class")
    @staticmethod
    def torch():
        pytest.importorskip("safetensors", reason=_WHY)
        torch = pytest.importorskip("torch", reason=_WHY)
        torch.manual_seed(0)
        return torch

    @staticmethod
    def _save(path: Path, module, architecture: str, parameters) -> Path:
        from safetensors.torch import save_file

        metadata = {"architecture": architecture, "parameters": parameters.model_dump_json()}
        save_file(module.state_dict(), path, metadata)
        return path

    def test_a_perceptron_with_derivatives_in_double_precision(self, torch, tmp_path):
        from attributary.workers.ondemand.loaders.architectures import Mlp, MlpParameters

        X, _ = _data()
        parameters = MlpParameters(
            features=4, hidden=[8, 8], outputs=3, activation="tanh", normalise=True
        )
        module = Mlp(parameters).double()
        module.mean[:], module.scale[:] = torch.arange(4.0), torch.arange(1.0, 5.0)
        path = self._save(tmp_path / "m.safetensors", module, "mlp", parameters)
        with torch.no_grad():
            expected = module(torch.tensor(X)).numpy()
        with open_file(path, {"batch_rows": 128}) as model:
            np.testing.assert_allclose(model(X), expected, rtol=1e-12)
            assert (model.precision, model.features, model.outputs) == ("float64", 4, 3)
            J = model.gradient(X)
            assert (model.gradient(X) == J).all()
        jacobian = torch.func.vmap(torch.func.jacrev(module))(torch.tensor(X)).detach().numpy()
        assert J.shape == (300, 3, 4)
        np.testing.assert_allclose(J, jacobian, rtol=1e-10, atol=1e-14)

    def test_a_transformer_ignores_padding(self, torch, tmp_path):
        from attributary.workers.ondemand.loaders.architectures import (
            TransformerClassifier,
            TransformerParameters,
        )

        parameters = TransformerParameters(
            tokens=20, positions=8, width=16, heads=2, layers=2, feedforward=32, padding=0
        )
        module = TransformerClassifier(parameters).eval()
        path = self._save(tmp_path / "m.safetensors", module, "transformer-classifier", parameters)
        tokens = np.random.default_rng(0).integers(1, 20, (50, 8)).astype(float)
        tokens[:25, 5:] = 0
        with torch.no_grad():
            expected = module(torch.tensor(tokens, dtype=torch.int64)).numpy()
        with open_file(path) as model:
            np.testing.assert_allclose(model(tokens), expected, atol=1e-6)
            np.testing.assert_allclose(model(tokens[:25, :5]), expected[:25], atol=1e-5)
            assert model.gradient is None
            assert model.precision == "float32"
            with raises(ErrorCode.MODEL_FAILED, "IndexError"):
                model(tokens + 100)
            with raises(ErrorCode.BAD_REQUEST, "whole numbers"):
                model(tokens + 0.5)

    def test_weights_that_do_not_fit_or_name_no_code_are_refused(self, torch, tmp_path):
        from safetensors.torch import save_file

        from attributary.workers.ondemand.loaders.architectures import Mlp, MlpParameters

        parameters = MlpParameters(features=4, hidden=[8])
        weights = Mlp(parameters).state_dict()
        path = tmp_path / "m.safetensors"
        text = parameters.model_dump_json()
        for metadata, said in [
            ({}, "does not say its architecture"),
            ({"architecture": "os.system"}, "installed are mlp, transformer-classifier"),
            ({"architecture": "mlp", "parameters": "{"}, "parameters of 'mlp'"),
            ({"architecture": "mlp", "parameters": '{"features": 1e9, "hidden": []}'}, "features"),
            (
                {"architecture": "mlp", "parameters": text.replace("[8]", "[65536,65536]")},
                "layers.2.bias",
            ),
            ({"architecture": "mlp", "parameters": text.replace("[8]", "[9]")}, "shape (8, 4)"),
        ]:
            save_file(weights, path, metadata)
            with raises(ErrorCode.MODEL_NOT_LOADABLE, said):
                load_here(path)

    def test_an_architecture_of_an_installed_package_with_a_named_output(
        self, torch, tmp_path, monkeypatch
    ):
        from safetensors.torch import save_file

        X, _ = _data()
        package = tmp_path / "package"
        (package / "mine-1.0.dist-info").mkdir(parents=True)
        (package / "mine-1.0.dist-info" / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n"
        )
        (package / "mine-1.0.dist-info" / "entry_points.txt").write_text(
            "[attributary.architectures]\nmine = mine:ARCHITECTURE\n"
        )
        (package / "mine.py").write_text(
            "import torch\n"
            "from attributary.workers.ondemand.loaders.architectures import Architecture, HyperParameters\n"
            "class Parameters(HyperParameters):\n"
            "    power: int\n"
            "class Net(torch.nn.Module):\n"
            "    def __init__(self, parameters):\n"
            "        super().__init__()\n"
            "        self.power = parameters.power\n"
            "        self.w = torch.nn.Parameter(torch.zeros(4, dtype=torch.float64))\n"
            "    def forward(self, x):\n"
            "        return {'p': torch.sigmoid(x @ self.w), 'power': (x ** self.power) @ self.w}\n"
            "ARCHITECTURE = Architecture(Parameters, Net)\n"
        )
        monkeypatch.syspath_prepend(str(package))
        w = torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64)
        path = tmp_path / "m.safetensors"
        save_file({"w": w}, path, {"architecture": "mine", "parameters": '{"power": 3}'})
        with open_file(path, head="power") as model:
            np.testing.assert_allclose(model(X), X**3 @ w.numpy(), rtol=1e-12)
            np.testing.assert_allclose(
                model.gradient(X)[:, 0], 3 * X**2 * w.numpy(), rtol=1e-12, atol=1e-15
            )
        odds = load_here(path, head="p", link="log-odds").predict(X)
        inside = np.abs(X @ w.numpy()) < 10
        np.testing.assert_allclose(odds[inside], (X @ w.numpy())[inside], rtol=1e-9)

    def test_programs_run_only_where_the_operator_has_pinned_them(self, torch, tmp_path):
        X, _ = _data()
        module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        with torch.no_grad():
            expected = module(torch.tensor(X, dtype=torch.float32)).numpy()[:, 0]
        script, program = tmp_path / "m.pt", tmp_path / "m.pt2"
        torch.jit.trace(module, torch.zeros(2, 4)).save(script)
        batch = torch.export.Dim("batch")
        torch.export.save(
            torch.export.export(module, (torch.zeros(2, 4),), dynamic_shapes=({0: batch},)), program
        )
        for path in (script, program):
            digest = card_of(path).artefact.sha256
            with raises(ErrorCode.ARTEFACT_REFUSED, "executable_sha256", digest):
                open_file(path)
            with open_file(path, {"executable_sha256": (digest,)}) as model:
                np.testing.assert_allclose(model(X), expected, rtol=1e-5, atol=1e-6)
                assert model.gradient(X).shape == (300, 1, 4)
        # Neither under another format's name.
        (tmp_path / "m.skops").write_bytes(script.read_bytes())
        with raises(ErrorCode.ARTEFACT_REFUSED, "torchscript", "can run code"):
            load_here(tmp_path / "m.skops")

    def test_mixed_precision_costs_digits(self, torch, tmp_path):
        from attributary.workers.ondemand.loaders.architectures import Mlp, MlpParameters

        X, _ = _data()
        parameters = MlpParameters(features=4, hidden=[32], activation="tanh")
        path = self._save(tmp_path / "m.safetensors", Mlp(parameters), "mlp", parameters)
        exact = load_here(path).predict(X)
        mixed = load_here(path, mixed_precision="bfloat16").predict(X)
        assert mixed.dtype == np.float64
        assert 1e-6 < np.abs(mixed - exact).max() < 2e-2

    @pytest.mark.parametrize("low", ["bfloat16", "float16"])
    def test_mixed_precision_is_what_the_model_computes_in(self, torch, tmp_path, low):
        from attributary.workers.ondemand.loaders.architectures import Mlp, MlpParameters

        X, _ = _data()
        parameters = MlpParameters(features=4, hidden=[32], activation="tanh")
        network = Mlp(parameters)
        path = self._save(tmp_path / "m.safetensors", network, "mlp", parameters)
        assert load_here(path).precision == "float32"
        exact = load_here(path).gradient(X)[:, 0]
        with open_file(path, {"mixed_precision": low}) as model:
            assert model.precision == low
            own = t_explain(
                model, X[:20], background=X[100:], precision=model.precision,
                piecewise_constant=False, gradient=model.gradient,
            )  # fmt: skip
            found = t_explain(
                model, X[:20], background=X[100:], precision=model.precision,
                piecewise_constant=False,
            )  # fmt: skip
        for one, most in ((own, 0.01), (found, 0.1)):
            gap = np.abs(one.gradient - exact[:20])
            assert np.linalg.norm(gap) < most * np.linalg.norm(exact[:20])
            assert (gap <= one.gradient_error).mean() >= 0.97
        # Autocast leaves float64 as it is.
        path = self._save(tmp_path / "d.safetensors", network.double(), "mlp", parameters)
        double = load_here(path, mixed_precision=low)
        assert double.precision == "float64"
        assert (double.predict(X) == load_here(path).predict(X)).all()

    def test_a_device_that_is_not_there(self, torch, tmp_path):
        from attributary.workers.ondemand.loaders.architectures import Mlp, MlpParameters

        parameters = MlpParameters(features=4, hidden=[])
        path = self._save(tmp_path / "m.safetensors", Mlp(parameters), "mlp", parameters)
        there = torch.cuda.device_count()
        with raises(ErrorCode.MODEL_NOT_LOADABLE, f"cuda:{there} is not there"):
            load_here(path, device=f"cuda:{there}")


def test_large_batches_go_in_parts_and_empty_ones_nowhere(tmp_path):
    onnx = pytest.importorskip("onnx", reason=_WHY)
    pytest.importorskip("onnxruntime", reason=_WHY)
    double = onnx.TensorProto.DOUBLE
    path = TestOnnx._save(
        onnx,
        tmp_path / "m.onnx",
        [onnx.helper.make_node("Neg", ["x"], ["y"])],
        [("x", double, ["n", "d"])],
        [TestOnnx._out(onnx, "y", double, ["n", "d"])],
    )
    with open_file(path, {"batch_rows": 1000}) as model:
        X = np.random.default_rng(0).normal(size=(3500, 300))
        assert (model(X) == -X).all()
        assert model(X[:0]).shape == (0, 300)
        assert (model(np.asfortranarray(X[:50])) == -X[:50]).all()
        X[[1002, 2001]] = np.inf
        with raises(ErrorCode.BAD_OUTPUT, "1 rows (row 1002)"):
            model(X)
        with raises(ErrorCode.BAD_REQUEST, "shape (300,)"):
            model(X[0])
    with open_file(path, {"batch_rows": 1000}) as model:
        assert model(X[:0]).shape == (0,)
        assert model.outputs is None
