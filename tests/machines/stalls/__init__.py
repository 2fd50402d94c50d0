"""Whoever is stopped before a change of the store, deposed, and goes on; judged by a ledger.

changes.py   which calls change something for good, as the code has them
lives.py     an actor that is stopped, or dies, at one of its changes
ledger.py    what everybody was told, and whether one order of it all explains what is left
tables.py    operators' verbs on one table, as actors
queues.py    operators' verbs on one export queue
"""
