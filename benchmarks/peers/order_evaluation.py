"""What importances of the words of a sentence are good for: which words to keep, how to order them."""

import numpy as np


class Remembering:
    """A model on rows of ids, (n, d) to (n,), every distinct row evaluated once, in batches."""

    def __init__(self, model, batch_size=128):
        self._model, self._batch_size, self._known = model, batch_size, {}

    def __call__(self, rows):
        rows = np.ascontiguousarray(rows, dtype=np.int64)
        names = [row.tobytes() for row in rows]
        new = {name: row for name, row in zip(names, rows, strict=True) if name not in self._known}
        for start in range(0, len(new), self._batch_size):
            part = list(new)[start : start + self._batch_size]
            values = self._model(np.array([new[name] for name in part]))
            self._known.update(zip(part, map(float, values), strict=True))
        return np.array([self._known[name] for name in names])


def areas(model, x, mask, scores, orders):
    """Return the areas under the inclusion and the exclusion curve, means over ``orders`` (n, d).

    Each order puts word ``order[p]`` of ``x`` (d,) at place p. Inclusion shows the k words of the
    highest scores and masks the others, exclusion masks those k; the output's mean over the orders
    against k / d, for k = 0..d, is the curve. High inclusion and low exclusion are good.
    """
    d = len(x)
    rank = np.argsort(np.argsort(-np.asarray(scores), kind="stable"))
    top = (rank < np.arange(d + 1)[:, None])[:, orders]
    shown = np.asarray(x)[orders]
    rows = np.concatenate([np.where(top, shown, mask), np.where(top, mask, shown)])
    curves = model(rows.reshape(-1, d)).reshape(2, d + 1, len(orders)).mean(axis=2)
    return (curves[:, 1:] + curves[:, :-1]).mean(axis=1) / 2


def reordered(model, x, scores):
    """Return the outputs with the words by rising scores (the highest last), and by falling ones."""
    rising = np.asarray(x)[np.argsort(scores, kind="stable")]
    return model(np.array([rising, rising[::-1]]))
