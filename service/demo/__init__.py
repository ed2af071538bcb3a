"""The demonstration: a model's rows on a real broker, explained as they arrive, and checked."""
