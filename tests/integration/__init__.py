"""Tests with real processes and real servers."""
