"""Tests that share a session of Spark: one worker takes them all."""
