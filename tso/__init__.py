"""The timestamp oracle: decisions, their durability, and the processes that make them."""
