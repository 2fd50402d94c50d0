"""Measurements and the demonstration: run from a checkout, not part of the distribution."""
