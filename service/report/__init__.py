"""One self-contained HTML page about a model: attributions, drift, accounting."""
