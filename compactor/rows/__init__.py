"""What becomes of a row: which cells are healed, invalidated, dropped or left alone."""
