"""Queues of what leaves for other systems: `omidpy export`."""
