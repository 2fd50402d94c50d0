"""One pass over one range of rows: its task, what it claims, and how far it is."""
