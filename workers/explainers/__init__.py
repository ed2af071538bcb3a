"""Explainers of single predictions, sequences and dependence: arrays and a batched model in."""
