"""XGBoost's own files, JSON and UBJ: data, no code; the parser trusts them, so it runs apart."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from attributary.workers.ondemand.loaders.links import log_odds
from attributary.workers.ondemand.loaders.optional import without

with without("pandas", "sklearn"):
    import xgboost
from attributary.workers.ondemand.loaders.loaded import (
    Floats,
    LoadedModel,
    Source,
    check_head,
    check_names,
    not_loadable,
)


def load(source: Source) -> LoadedModel:
    """Open a booster. Heads: "margin" (default), or "prediction", what the objective makes of it."""
    head = check_head(source, ("margin", "prediction"))
    data = source.read()
    if data.lstrip()[:1] != b"{":
        raise not_loadable(
            f"artefact {source.uri!r} is neither XGBoost JSON nor UBJ: write it with "
            "model.save_model('m.ubj')"
        )
    booster = xgboost.Booster()
    try:
        booster.load_model(bytearray(data))
        config = json.loads(booster.save_config())
    except xgboost.core.XGBoostError as error:
        reason = str(error).strip().splitlines()[-1]
        raise not_loadable(f"XGBoost cannot read artefact {source.uri!r}: {reason}") from error
    booster.set_param({"nthread": source.threads, "device": source.device})
    check_names(source, list(booster.feature_names or []))
    linear = config["learner"]["gradient_booster"]["name"] == "gblinear"
    # What the scikit-learn interface predicts with after early stopping.
    best = booster.attr("best_iteration")
    rounds = (0, 0 if best is None else int(best) + 1)
    margin = head == "margin"

    def predict(X: Floats) -> npt.NDArray[Any]:
        if linear:
            matrix = xgboost.DMatrix(X, nthread=source.threads)
            return np.asarray(
                booster.predict(matrix, output_margin=margin, validate_features=False)
            )
        Y = booster.inplace_predict(
            X,
            iteration_range=rounds,
            predict_type="margin" if margin else "value",
            validate_features=False,
        )
        return np.asarray(Y)

    return LoadedModel(
        predict=(lambda X: log_odds(predict(X))) if source.link == "log-odds" else predict,
        precision="float32",
        piecewise_constant=not linear,
        features=booster.num_features(),
        device=source.device,
    )
