"""What the store remembers besides the users' cells, each fact with its meaning."""
