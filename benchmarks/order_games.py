"""Games whose value depends on who is present and in which order, small enough to know exactly.

A game is a callable from rows (n, d) of tokens 1..d, 0 where masked, to values (n,).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import factorial
from typing import Any

import numpy as np

Game = Callable[[Any], Any]


def hats(rows: Any) -> Any:
    """Four hats (1-4), a bag (5), gloves (6, 7), a stone (8): a hat counts 3, a pair 2, after the bag."""
    value, bag = np.zeros(len(rows)), np.zeros(len(rows), dtype=bool)
    left, right = np.zeros(len(rows), dtype=bool), np.zeros(len(rows), dtype=bool)
    for token in rows.T:
        bag |= token == 5
        value += 3.0 * (bag & (token >= 1) & (token <= 4))
        left |= bag & (token == 6)
        right |= bag & (token == 7)
    return value + 2.0 * (left & right)


def order(d: int) -> Game:
    """Return tanh of values, places and who comes before whom, with random weights."""
    rng = np.random.default_rng(1)
    worth = np.concatenate([[0.0], rng.normal(size=d)])
    drift = np.concatenate([[0.0], rng.normal(size=d) / d])
    before = np.zeros((d + 1, d + 1))
    before[1:, 1:] = rng.normal(size=(d, d)) * 1.5 / np.sqrt(d)
    centred = np.arange(d) - (d - 1) / 2

    def game(rows: Any) -> Any:
        total = (worth[rows] + drift[rows] * centred).sum(axis=1)
        for p, q in itertools.combinations(range(d), 2):
            total += before[rows[:, p], rows[:, q]]
        return np.tanh(total / 2.0)

    return game


def recurrent(d: int) -> Game:
    """Return the output of a recurrent network with six tanh units and random weights."""
    rng = np.random.default_rng(2)
    embedding = np.concatenate([np.zeros((1, 6)), rng.normal(size=(d, 6))])
    kept, out = rng.normal(size=(6, 6)) * 1.1 / np.sqrt(6), rng.normal(size=6)

    def game(rows: Any) -> Any:
        state = np.zeros((len(rows), 6))
        for token in rows.T:
            state = np.tanh(state @ kept + embedding[token])
        return state @ out

    return game


def no_structure(d: int) -> Game:
    """Return a wave over a random sum: nothing about one arrangement says much about another."""
    weight = np.random.default_rng(3).normal(size=(d, d + 1)) * 22.0
    places = np.arange(d)

    def game(rows: Any) -> Any:
        return np.sin(weight[places, rows].sum(axis=1))

    return game


def tabled(game: Game, d: int, chunk: int = 4096) -> Game:
    """Return the same game from a table of all its values, for models that are slow to call."""
    rows = np.concatenate(list(_placements(d)))
    base = (d + 1) ** np.arange(d)
    table = np.full((d + 1) ** d, np.nan)
    parts = [game(rows[k : k + chunk]) for k in range(0, len(rows), chunk)]
    table[rows @ base] = np.concatenate(parts)
    return lambda asked: table[np.asarray(asked) @ base]


def truth(game: Game, d: int) -> tuple[Any, Any]:
    """Return value and position importance (d,) from the values of all placements.

    γ_iℓ is the mean over placements of the others of φ_i; a placement of s units with i at ℓ is shared
    by (d - s)! permutations, one without i and with ℓ free by as many.
    """
    gamma = np.zeros((d, d))
    for rows in _placements(d):
        size = int((rows[0] > 0).sum())
        values = game(rows)
        present = np.unique(rows[rows > 0]) - 1
        share = factorial(d - size) / factorial(d - 1)
        at = np.zeros((d, d))
        slots = np.broadcast_to(np.arange(d), rows.shape)
        known = rows > 0
        np.add.at(at, (rows[known] - 1, slots[known]), np.repeat(values, size))
        if size:
            joined = factorial(size - 1) * factorial(d - size) / factorial(d)
            gamma[present] += joined * share * at[present]
        if size < d:
            left = factorial(size) * factorial(d - size - 1) / factorial(d)
            free = values.sum() - at.sum(axis=0)
            absent = np.setdiff1d(np.arange(d), present)
            gamma[absent] -= left * factorial(d - 1 - size) / factorial(d - 1) * free
    centred = np.arange(d) - (d - 1) / 2
    return gamma.mean(axis=1), gamma @ centred / (centred @ centred)


def _placements(d: int) -> Any:
    """Yield, for every coalition, the rows (k, d) of all ways to place it."""
    for size in range(d + 1):
        ways = list(itertools.permutations(range(d), size))
        slots = np.array(ways, dtype=np.int64).reshape(len(ways), size)
        lines = np.arange(len(ways))[:, None]
        for coalition in itertools.combinations(range(1, d + 1), size):
            rows = np.zeros((len(ways), d), dtype=np.int64)
            rows[lines, slots] = coalition
            yield rows


def small_transformer(d: int, steps: int) -> tuple[Game, float]:
    """Train a one-layer transformer to predict a score that hangs on order; return it and its R².

    Sequences of d of 12 tokens; the target adds the tokens' worth, more the earlier they come, and a
    bonus for every token 1 before a token 2. The game is the trained model on one held-out
    sequence, its token 0 the mask (a tenth of the training tokens are masked).
    """
    import torch

    torch.manual_seed(0)
    rng = np.random.default_rng(4)
    worth = np.concatenate([[0.0], rng.normal(size=12)])

    def draw(count: int) -> tuple[Any, Any]:
        tokens = rng.integers(1, 13, size=(count, d)) * (rng.random((count, d)) > 0.1)
        target = (worth[tokens] * np.linspace(1.5, 0.5, d)).sum(axis=1)
        firsts = np.cumsum(tokens == 1, axis=1)
        return tokens, target + 1.5 * (firsts * (tokens == 2)).sum(axis=1)

    class Network(torch.nn.Module):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.token = torch.nn.Embedding(13, 24)
            self.place = torch.nn.Parameter(torch.randn(d, 24) * 0.3)
            self.layer = torch.nn.TransformerEncoderLayer(
                24, 3, 48, dropout=0.0, batch_first=True, activation="gelu"
            )
            self.out = torch.nn.Linear(24, 1)

        def forward(self, tokens: Any) -> Any:
            return self.out(self.layer(self.token(tokens) + self.place).sum(dim=1))[:, 0]

    network = Network()
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for _ in range(steps):
        tokens, target = (torch.as_tensor(part) for part in draw(256))
        optimiser.zero_grad()
        loss = ((network(tokens) - target.float()) ** 2).mean()
        loss.backward()
        optimiser.step()
    network.eval()

    def model(rows: Any) -> Any:
        with torch.inference_mode():
            return network(torch.as_tensor(rows)).double().numpy()

    tokens, target = draw(2_000)
    fit = 1.0 - float(((model(tokens) - target) ** 2).mean() / target.var())
    words = np.concatenate([[0], rng.permutation(np.arange(1, 13))[:d]])
    return lambda rows: model(words[rows]), fit
