"""What other systems log, as rows: pure functions from a message to rows, or to a typed refusal."""
