"""100 explanations of one 16-feature network by every explainer, timed in one process, as JSON."""

import json
import sys
import warnings
from functools import partial

import numpy as np
from explained_models import Network
from timing import seconds

from attributary.workers.explainers.t_explainer import t_explain

warnings.filterwarnings("ignore")
rows, repeats, backgrounds, peers = (json.loads(argument) for argument in sys.argv[1:])
rng = np.random.default_rng(5)
network = Network.drawn((16, 64, 64, 1))
X, train = rng.normal(size=(rows, 16)), rng.normal(size=(1000, 16))
entries = []


def ours(times):
    for size in backgrounds:
        explain = partial(t_explain, model, X, background=train[:size])
        entry = {"who": "attributary", "does": "T-Explainer", "background": size}
        entries.append({**entry, "seconds": seconds(explain, times)})


if peers:
    import captum.attr
    import shap
    import torch

    module = network.module(torch.float32)

    def model(values):
        """The torch network, as a callable: what everybody but captum is given."""
        with torch.no_grad():
            return module(torch.as_tensor(np.asarray(values), dtype=torch.float32))[:, 0].numpy()

    def exact(values):
        inputs = torch.tensor(values, dtype=torch.float32, requires_grad=True)
        return torch.autograd.grad(module(inputs).sum(), inputs)[0].numpy()
else:
    model = network

ours(repeats)
if peers:
    name = f"shap {shap.__version__}"
    for size in backgrounds:
        background = train[:size]
        kernel = shap.KernelExplainer(model, background)
        permutation = shap.PermutationExplainer(model, background)
        for does, run in (
            ("KernelExplainer", partial(kernel.shap_values, silent=True)),
            ("PermutationExplainer", partial(permutation, silent=True)),
        ):
            # A call takes up to a minute: once, after a row that compiles what is compiled.
            run(X[:1])
            times = seconds(lambda run=run: run(X), 1, warm_ups=0)
            entries.append({"who": name, "does": does, "background": size, "seconds": times})
    integrated = captum.attr.IntegratedGradients(module)
    inputs = torch.tensor(X, dtype=torch.float32, requires_grad=True)
    entries.append(
        {
            "who": f"captum {captum.__version__}",
            "does": "IntegratedGradients",
            "background": 1,
            "seconds": seconds(lambda: integrated.attribute(inputs), repeats),
        }
    )
    ours(repeats)

found = t_explain(model, X, background=train[:100])
about = {"rows": rows, "entries": entries, "model_rows": found.model_rows}
if peers:
    about["worst"] = float(np.abs(found.gradient - exact(X)).max())
print(json.dumps(about))
