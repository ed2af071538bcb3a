"""The on-demand workers: explanations on request, and the safe loading of the models they explain."""
