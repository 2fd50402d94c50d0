"""Entries in the table of their queue: how they come, in which order, how many, and how they go."""
