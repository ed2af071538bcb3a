"""Six explainers on sentences whose label hangs on order, for a head on MiniLM, as JSON.

Arguments: the folder of MiniLM's files, sentences to train on, sentences to explain, permutations.
"""

import json
import sys
import warnings
from pathlib import Path

import captum.attr
import lime.lime_text
import numpy as np
import order_sentences
import shap
import torch
from minilm import MiniLM
from order_evaluation import Remembering, areas, reordered

from attributary.workers.explainers.ordshap import ordshap

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
torch.manual_seed(0)
folder = Path(sys.argv[1])
train_count, count, permutations = map(int, sys.argv[2:])
ORDERS, RANDOM_ORDERS, STEPS = 6, 32, 32
rng = np.random.default_rng(7)
encoder = MiniLM(folder)


def embedded(sentences):
    """Return the vectors (n, 384) of sentences of any lengths."""
    found = torch.empty(len(sentences), 384)
    lengths = np.array([len(words) for words in sentences])
    with torch.inference_mode():
        for length in np.unique(lengths):
            for part in np.split(at := np.flatnonzero(lengths == length), range(128, len(at), 128)):
                rows = np.array([encoder.tokens(sentences[k]) for k in part])
                found[torch.as_tensor(part)] = encoder.pooled(encoder.embedded(rows))
    return found


def head_on(vectors, labels):
    """Return a network with one hidden layer, trained on a tenth of label smoothing."""
    mean, spread = vectors.mean(dim=0), vectors.std(dim=0)
    network = torch.nn.Sequential(torch.nn.Linear(384, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
    optimiser = torch.optim.AdamW(network.parameters(), 3e-3, weight_decay=0.1)
    inputs = (vectors - mean) / spread
    target = torch.as_tensor(labels).float() * 0.9 + 0.05
    for _ in range(300):
        optimiser.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(network(inputs)[:, 0], target)
        loss.backward()
        optimiser.step()
    network.requires_grad_(False)
    return lambda vectors: torch.sigmoid(network((vectors - mean) / spread)[:, 0])


sentences, labels = order_sentences.draw(train_count, rng)
head = head_on(embedded(sentences), labels)
known = {tuple(words) for words in sentences}
sentences, labels = order_sentences.draw(20 * count + 500, rng)
new = [k for k, words in enumerate(sentences) if tuple(words) not in known]
sentences, labels = [sentences[k] for k in new][:500], labels[new][:500]
right = (head(embedded(sentences)).numpy() > 0.5) == labels
accuracy = float(right.mean())
chosen = np.flatnonzero(right)[:count]

methods: dict = {}
orders_mean, extremes = [], []


def keep(name, calls, own_areas, ends):
    entry = methods.setdefault(name, {"calls": [], "areas": [], "ends": []})
    entry["calls"].append(calls)
    entry["areas"].append(own_areas)
    entry["ends"].append(ends)


for number in chosen:
    words, sign = sentences[number], labels[number]
    x, d = encoder.tokens(words), len(words)

    def probability(vectors, sign=sign):
        """The probability of the class that the model says, which is the right one."""
        good = head(encoder.pooled(vectors))
        return good if sign else 1.0 - good

    def direct(rows):
        with torch.inference_mode():
            return probability(encoder.embedded(rows)).double().numpy()

    model = Remembering(direct)
    found = ordshap(model, x, mask=encoder.mask, n_permutations=permutations, batch_size=512)
    budget = found.model_calls

    def coalitions(present, x=x, model=model):
        return model(np.where(np.asarray(present) > 0.5, x, encoder.mask))

    kernel = shap.KernelExplainer(coalitions, np.zeros((1, d)))
    by_kernel = kernel.shap_values(np.ones((1, d)), nsamples=budget, l1_reg=False, silent=True)[0]

    def texts(given, model=model):
        good = model(np.array([encoder.tokens(text.split()) for text in given]))
        return np.column_stack([1.0 - good, good])

    explainer = lime.lime_text.LimeTextExplainer(
        bow=False, mask_string="[MASK]", split_expression=r"\s+", random_state=0
    )
    said = explainer.explain_instance(
        " ".join(words), texts, num_features=d, num_samples=budget
    ).as_map()[1]
    by_lime = np.zeros(d)
    for place, weight in said:
        by_lime[place] = weight

    without = np.where(np.eye(d, dtype=bool), encoder.mask, x)
    by_loco = model(x[None]) - model(without)
    integrated = captum.attr.IntegratedGradients(probability)
    path = [encoder.embedded(rows[None]) for rows in (x, np.full(d, encoder.mask))]
    steps = integrated.attribute(path[0], path[1], n_steps=STEPS)
    by_gradient = steps[0].sum(dim=1)[1:-1].numpy()

    shuffled = rng.permuted(np.tile(np.arange(d), (RANDOM_ORDERS, 1)), axis=1)
    values = model(x[shuffled])
    orders_mean.append(float(values.mean()))
    extremes.append([float(values.max()), float(values.min())])
    for name, calls, scores in (
        ("OrdShap VI", budget, found.value_importance),
        ("KernelSHAP", budget, by_kernel),
        ("LIME", budget, by_lime),
        ("LOCO", d + 1, by_loco),
        ("Integrated Gradients", STEPS, by_gradient),
        ("random", 0, rng.normal(size=d)),
        ("OrdShap PI", budget, found.position_importance),
    ):
        own = [
            *areas(model, x, encoder.mask, scores, shuffled[:ORDERS]),
            *areas(model, x, encoder.mask, scores, np.arange(d)[None]),
        ]
        keep(name, calls, own, list(reordered(model, x, scores)))

versions = {"shap": shap.__version__, "captum": captum.__version__}
print(
    json.dumps(
        {
            "accuracy": accuracy,
            "trained_on": train_count,
            "lengths": [len(sentences[number]) for number in chosen],
            "example": " ".join(sentences[chosen[0]]),
            "orders": ORDERS,
            "random_orders": RANDOM_ORDERS,
            "random_mean": orders_mean,
            "extremes": extremes,
            "versions": versions,
            "methods": methods,
        }
    )
)
