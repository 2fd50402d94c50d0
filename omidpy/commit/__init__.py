"""What becomes of a write set: the oracle's decision, and what follows it."""
