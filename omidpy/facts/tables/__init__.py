"""What the store remembers of tables: which there are, who made them, and what they have been."""
