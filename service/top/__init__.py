"""The live terminal view over all models."""
