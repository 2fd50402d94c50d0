"""Sinks that are databases of SQL."""
