"""Deliberately broken variants, each of which must be caught."""
