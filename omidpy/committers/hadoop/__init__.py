"""Hadoop's ways: its other committers, and what its dead jobs have left."""
