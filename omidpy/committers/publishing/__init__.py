"""How a job that is decided ends: its files become visible, or invisible for ever."""
