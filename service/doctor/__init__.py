"""What may be wrong between the broker, the topics, the workers and the rows, and what to do about it."""
