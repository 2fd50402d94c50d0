"""A transaction, from its first write to its end."""
