"""Oracles, clients, their store, network and clocks in one process, by one seed."""
