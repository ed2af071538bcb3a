"""The MiniLM sentence encoder from the files of its package: words in, mean-pooled vectors out."""

import json
import math

import numpy as np
import torch
from torch.nn import functional

HEADS = 12


class MiniLM:
    """A BERT encoder of six layers, read from ``folder`` (model.safetensors, vocab.txt).

    A word is one token; [CLS] and [SEP] stand around the words of every sentence.
    """

    def __init__(self, folder):
        self.weights = _tensors(folder / "model.safetensors")
        lines = (folder / "vocab.txt").read_text(encoding="utf-8").splitlines()
        self._ids = {word: number for number, word in enumerate(lines)}
        self.mask, self._first, self._last = (self._ids[t] for t in ("[MASK]", "[CLS]", "[SEP]"))

    def tokens(self, words):
        """Return the ids (d,) of words; KeyError where one is no single token."""
        return np.array([self._ids[word] for word in words])

    def embedded(self, rows):
        """Return the word vectors (n, d + 2, 384) of ids (n, d), before places are added."""
        rows = torch.as_tensor(np.asarray(rows, dtype=np.int64))
        edges = [torch.full((len(rows), 1), token) for token in (self._first, self._last)]
        ids = torch.cat([edges[0], rows, edges[1]], dim=1)
        return self.weights["embeddings.word_embeddings.weight"][ids]

    def pooled(self, vectors):
        """Return the sentence vectors (n, 384) of word vectors (n, d + 2, 384)."""
        weights, length = self.weights, vectors.shape[1]
        x = vectors + weights["embeddings.position_embeddings.weight"][:length]
        x = self._norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.")
        layer = 0
        while f"encoder.layer.{layer}.output.dense.weight" in weights:
            name = f"encoder.layer.{layer}."
            attended = self._linear(self._attention(x, name), f"{name}attention.output.dense.")
            x = self._norm(x + attended, f"{name}attention.output.")
            inner = functional.gelu(self._linear(x, f"{name}intermediate.dense."))
            x = self._norm(x + self._linear(inner, f"{name}output.dense."), f"{name}output.")
            layer += 1
        return functional.normalize(x.mean(dim=1))

    def _attention(self, x, name):
        shape = (*x.shape[:2], HEADS, x.shape[2] // HEADS)
        query, key, value = (
            self._linear(x, f"{name}attention.self.{part}.").view(shape).transpose(1, 2)
            for part in ("query", "key", "value")
        )
        weight = torch.softmax(query @ key.transpose(2, 3) / math.sqrt(shape[3]), dim=-1)
        return (weight @ value).transpose(1, 2).reshape(x.shape)

    def _linear(self, x, name):
        return functional.linear(x, self.weights[f"{name}weight"], self.weights[f"{name}bias"])

    def _norm(self, x, name):
        weight, bias = (self.weights[f"{name}LayerNorm.{part}"] for part in ("weight", "bias"))
        return functional.layer_norm(x, weight.shape, weight, bias, 1e-12)


def _tensors(path):
    """Return {name: float32 tensor} of a safetensors file: a length, JSON with offsets, bytes."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    found = {}
    for name, about in json.loads(content[8:start]).items():
        if about.get("dtype") == "F32":
            first, last = about["data_offsets"]
            values = np.frombuffer(content[start + first : start + last], dtype="<f4")
            found[name] = torch.tensor(values.reshape(about["shape"]))
    return found
