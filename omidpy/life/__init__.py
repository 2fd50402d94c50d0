"""Who lives, who is taken for dead, and how a process shows that it lives."""
