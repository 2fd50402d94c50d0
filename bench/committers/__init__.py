"""Committers beside Hadoop's, on a network that adds 20 ms to each request."""
