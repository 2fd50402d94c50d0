"""What is in the folder `commit`, alone."""
