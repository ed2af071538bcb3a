"""scikit-learn models saved by skops: only types that skops or the operator trusts are built."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import numpy.typing as npt

from attributary.schemas.explanation import ErrorCode
from attributary.workers.ondemand.errors import RequestError
from attributary.workers.ondemand.loaders.links import log_odds
from attributary.workers.ondemand.loaders.loaded import (
    Floats,
    LoadedModel,
    Source,
    check_names,
    not_loadable,
)
from attributary.workers.ondemand.loaders.optional import without
from attributary.workers.ondemand.loaders.sniff import open_archive

with without("torch"):
    import joblib
    import skops.io
    from sklearn.base import BaseEstimator, is_regressor
    from sklearn.ensemble import (
        AdaBoostClassifier,
        AdaBoostRegressor,
        BaggingClassifier,
        BaggingRegressor,
        GradientBoostingClassifier,
        GradientBoostingRegressor,
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
        IsolationForest,
    )
    from sklearn.ensemble._forest import BaseForest
    from sklearn.pipeline import Pipeline
    from sklearn.tree import BaseDecisionTree

_HEADS = ("decision_function", "predict_proba", "predict")
_TREES = (
    BaseDecisionTree, BaseForest, GradientBoostingClassifier, GradientBoostingRegressor,
    HistGradientBoostingClassifier, HistGradientBoostingRegressor, IsolationForest,
)  # fmt: skip
_ENSEMBLES = (AdaBoostClassifier, AdaBoostRegressor, BaggingClassifier, BaggingRegressor)


def load(source: Source) -> LoadedModel:
    """Open an estimator or pipeline.

    Heads: "decision_function", else "predict_proba", else "predict", the first that it has; regressors
    predict. Probabilities become log-odds unless the link is "identity".
    """
    with open_archive(source) as archive:
        if "schema.json" not in archive.namelist():
            raise not_loadable(
                f"artefact {source.uri!r} is no skops file: write it with skops.io.dump"
            )
    data = source.read()
    try:
        untrusted = skops.io.get_untrusted_types(data=data)
        refused = sorted(set(untrusted) - set(source.skops_trusted))
        if refused:
            raise RequestError(
                ErrorCode.ARTEFACT_REFUSED,
                f"artefact {source.uri!r} is refused: it builds {', '.join(map(str, refused[:10]))}, "
                "which skops does not trust; the operator can, in the models' setting 'skops_trusted'",
            )
        model = skops.io.loads(data, trusted=sorted(set(untrusted) & set(source.skops_trusted)))
    except RequestError:
        raise
    except MemoryError:
        raise
    except Exception as error:  # whatever a damaged file makes of it
        raise not_loadable(
            f"skops cannot read artefact {source.uri!r}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(model, BaseEstimator):
        raise not_loadable(
            f"artefact {source.uri!r} holds a {type(model).__name__}, expected an estimator or pipeline"
        )
    own = getattr(model, "feature_names_in_", None)
    names = None if own is None else [str(name) for name in own]
    check_names(source, names)
    head = _head(source, model)
    trees = _is_trees(model)
    function = getattr(model, head)
    as_input = _tables(names)
    odds = (source.link or ("log-odds" if head == "predict_proba" else "identity")) == "log-odds"

    def predict(X: Floats) -> npt.NDArray[Any]:
        # Joblib's own processes would have none of this one's limits.
        with joblib.parallel_config("threading", n_jobs=source.threads):
            Y = np.asarray(function(as_input(X)))
        return log_odds(Y) if odds else Y

    return LoadedModel(
        predict=predict,
        precision="float64",
        piecewise_constant=trees,
        features=getattr(model, "n_features_in_", None),
    )


def _head(source: Source, model: Any) -> str:
    known = [name for name in _HEADS if hasattr(model, name)]
    if is_regressor(model) and source.head is None:
        known = ["predict"]
    if not known:
        raise not_loadable(f"a {type(model).__name__} does not predict anything")
    if source.head is not None and source.head not in known:
        raise not_loadable(
            f"the artefact's head {source.head!r} is not one of {', '.join(known)}, which this "
            f"{type(model).__name__} has"
        )
    return source.head or known[0]


def _is_trees(model: Any) -> bool:
    if isinstance(model, Pipeline):
        return _is_trees(model.steps[-1][1])
    if isinstance(model, _ENSEMBLES):
        return _is_trees(model.estimators_[0])
    inner = getattr(model, "best_estimator_", None)
    return isinstance(model, _TREES) or (inner is not None and _is_trees(inner))


def _tables(names: list[str] | None) -> Any:
    """Return what makes an array the input that the model was fitted on: a table where it had names."""
    if names is None or importlib.util.find_spec("pandas") is None:
        return lambda X: X
    import pandas

    return lambda X: pandas.DataFrame(X, columns=names)
