"""A real Apache Phoenix on our oracle and on Omid's, and Python's two roads to its rows."""
