"""Ctrl-C at every line of every public call, made repeatable."""
