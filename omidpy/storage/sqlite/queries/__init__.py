"""The SQL by which cells are read and written, and what is read with it."""
