"""SHAP Kernel on the sequences of a file, by the model that is named: one value per token."""

import json
import sys

import numpy as np
import shap
from order_tokens import MODELS

sequences = np.load(sys.argv[1])
explainer = shap.KernelExplainer(MODELS[sys.argv[2]], np.zeros((1, sequences.shape[1])))
values = explainer.shap_values(sequences, silent=True)
print(json.dumps(np.asarray(values).tolist()))
