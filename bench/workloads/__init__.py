"""Whole workloads, each a module that answers one question and returns its numbers."""
