"""What travels on the bus: rows, model cards, grids, sketches, attributions, dead letters."""
