"""Deaths at every step: who dies (`mortal.py`), doing what (`scenarios.py`), and who judges it."""
