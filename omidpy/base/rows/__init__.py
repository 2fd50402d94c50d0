"""What is done to every row that is read."""
