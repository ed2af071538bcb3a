"""Pure mathematics on numpy arrays: sketches, attributions, drift. Imports nothing of the project."""
