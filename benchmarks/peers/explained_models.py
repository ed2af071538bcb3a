"""The models that are explained: a network and boosted trees, each as a callable and as its library's own."""

from itertools import pairwise

import numpy as np


def sigmoid(values):
    return 1.0 / (1.0 + np.exp(-values))


class Network:
    """A network of ReLU or tanh layers with one output; probabilities, or the margin itself.

    The same weights serve as a numpy callable in float64 and, for captum, as a torch module.
    """

    kind = "network"

    def __init__(self, weights, biases, activation="relu", probability=True):
        self.weights, self.biases = weights, biases
        self.activation, self.probability = activation, probability

    @classmethod
    def fitted(cls, X, y, hidden=(32, 32, 32)):
        """Return a classifier of three hidden layers, trained by scikit-learn."""
        from sklearn.neural_network import MLPClassifier

        learner = MLPClassifier(
            hidden, max_iter=200, alpha=1e-3, early_stopping=True, random_state=0
        )
        learner.fit(X, y)
        return cls(learner.coefs_, learner.intercepts_)

    @classmethod
    def drawn(cls, sizes, seed=0):
        """Return a tanh network with drawn weights."""
        rng = np.random.default_rng(seed)
        pairs = list(pairwise(sizes))
        weights = [rng.normal(size=pair) / np.sqrt(pair[0]) for pair in pairs]
        biases = [0.1 * rng.normal(size=pair[1]) for pair in pairs]
        return cls(weights, biases, "tanh", probability=False)

    def __call__(self, X):
        values = np.asarray(X, dtype=np.float64)
        last = len(self.weights) - 1
        for k, (W, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = values @ W + b
            if k < last:
                values = np.tanh(values) if self.activation == "tanh" else np.maximum(values, 0.0)
        return sigmoid(values[:, 0]) if self.probability else values[:, 0]

    def module(self, dtype):
        """Return the torch module, (b, d) to (b, 1)."""
        import torch

        layers = []
        for W, b in zip(self.weights, self.biases, strict=True):
            layer = torch.nn.Linear(*W.shape, dtype=dtype)
            with torch.no_grad():
                layer.weight.copy_(torch.as_tensor(W.T))
                layer.bias.copy_(torch.as_tensor(b))
            layers += [layer, torch.nn.Tanh() if self.activation == "tanh" else torch.nn.ReLU()]
        layers.pop()
        if self.probability:
            layers.append(torch.nn.Sigmoid())
        return torch.nn.Sequential(*layers).eval()


class Trees:
    """XGBoost, 100 trees of depth 4, probabilities of class 1 in float32."""

    kind = "trees"

    def __init__(self, X, y):
        from xgboost import XGBClassifier

        self.library = XGBClassifier(
            n_estimators=100, max_depth=4, learning_rate=0.1, random_state=0, n_jobs=1
        )
        self.library.fit(X, y)

    def __call__(self, X):
        return self.library.predict_proba(np.asarray(X, dtype=np.float32))[:, 1]


MODELS = {"network": Network.fitted, "XGBoost": Trees}
