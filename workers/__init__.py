"""The workers: mathematics, stream processing and, on demand, explanations."""
