"""Clients, oracle and compactor under seeded faults and virtual time."""
