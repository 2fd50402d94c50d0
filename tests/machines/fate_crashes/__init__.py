"""Executors that end before or after any write of theirs, and what their successors make of it."""
