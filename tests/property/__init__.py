"""Hypothesis: generated inputs against naive models."""
