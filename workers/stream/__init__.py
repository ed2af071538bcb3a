"""Rows to pane sketches (ingest), and sketches to attributions per window (merge)."""
