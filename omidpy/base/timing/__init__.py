"""Clocks, and how long to wait by them."""
