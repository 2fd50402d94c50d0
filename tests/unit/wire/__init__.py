"""What is in the folder `wire`, alone."""
