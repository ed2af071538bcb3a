"""The explainers side by side, each a function from rows (k, d) to (attributions (k, d), base values).

Peers are imported only where they are asked for.
"""

import warnings

import numpy as np

from attributary.workers.explainers.t_explainer import t_explain


def ours(model, background, groups):
    """T-Explainer: its contributions, the bare slopes that the paper calls so, slopes times values."""

    def explanation(X):
        return t_explain(model, X, background=background, categorical=groups)

    def contributions(X):
        found = explanation(X)
        return found.contributions, found.base_value

    def slopes(X):
        found = explanation(X)
        return found.gradient, found.base_value

    def against_zero(X):
        found = explanation(X)
        return found.gradient * X, float(model(np.zeros((1, X.shape[1])))[0])

    return {
        "T-Explainer": contributions,
        "T-Explainer, slopes as printed": slopes,
        "T-Explainer, against zero": against_zero,
    }


def black_box(model, background, train, groups):
    """Methods that see the model only as a callable."""
    import shap
    from lime.lime_tabular import LimeTabularExplainer

    kernel = shap.KernelExplainer(model, background)
    levels = [j for group in groups for j in group]
    lime = LimeTabularExplainer(
        train, mode="regression", categorical_features=levels, discretize_continuous=True
    )

    def shap_kernel(X):
        return kernel.shap_values(X, silent=True), kernel.expected_value

    def lime_tabular(X):
        found, base = np.zeros(X.shape), np.zeros(len(X))
        for k, x in enumerate(X):
            answer = lime.explain_instance(x, model, num_features=X.shape[1])
            base[k] = answer.intercept[1]
            for j, value in answer.local_exp[1]:
                found[k, j] = value
        return found, base

    return {"SHAP Kernel": shap_kernel, "LIME": lime_tabular}


def trees(model, background):
    """TreeSHAP, of the probability, against the same background."""
    import shap

    explainer = shap.TreeExplainer(
        model.library,
        background,
        model_output="probability",
        feature_perturbation="interventional",
    )

    def shap_tree(X):
        return explainer.shap_values(X), explainer.expected_value

    return {"SHAP Tree": shap_tree}


def gradients(model, background):
    """captum's methods, which differentiate the network; the baseline is the mean of the background."""
    import torch
    from captum.attr import DeepLift, InputXGradient, IntegratedGradients

    module = model.module(torch.float64)
    centre = torch.as_tensor(background.mean(axis=0, keepdims=True))
    base = float(model(centre.numpy())[0])
    integrated, deep, product = (
        kind(module) for kind in (IntegratedGradients, DeepLift, InputXGradient)
    )

    def tensor(X):
        return torch.tensor(X, dtype=torch.float64, requires_grad=True)

    def run(found):
        return found.detach().numpy()

    return {
        "Integrated Gradients": lambda X: (run(integrated.attribute(tensor(X), centre)), base),
        "Input × Gradient": lambda X: (run(product.attribute(tensor(X))), base),
        "DeepLIFT": lambda X: (run(deep.attribute(tensor(X), centre)), base),
    }


def methods(model, background, train, groups, peers):
    """Return {name: explain} of everything that can explain this model."""
    warnings.filterwarnings("ignore")
    found = ours(model, background, groups)
    if peers:
        found |= black_box(model, background, train, groups)
        found |= trees(model, background) if model.kind == "trees" else gradients(model, background)
    return found
