"""ixai: incremental permutation feature importance, one explanation step a row, defaults.

The model is as cheap as a model can be, a weighted sum, so that what is timed is the method.
"""

import warnings

from ixai.explainer import IncrementalPFI
from timing import Peer

warnings.filterwarnings("ignore", message="The provided model function")

peer = Peer("ixai")
names = [f"x{j}" for j in range(peer.X.shape[1])]
slopes = {name: 1.0 / (j + 1) for j, name in enumerate(names)}
rows = peer.rows(2048)
records = [dict(zip(names, row, strict=True)) for row in peer.X[:rows].tolist()]
outputs = peer.Y[:rows, 0].tolist()


def model(row: dict[str, float]) -> dict[str, float]:
    return {"output": sum(slope * row[name] for name, slope in slopes.items())}


def loss(true: float, predicted: dict[str, float]) -> float:
    return (true - predicted["output"]) ** 2


def explain() -> None:
    explainer = IncrementalPFI(model_function=model, loss_function=loss, feature_names=names)
    for record, output in zip(records, outputs, strict=True):
        explainer.explain_one(record, output)


peer.time("incremental PFI, row by row, model a weighted sum", explain, rows, "pane")
peer.report()
