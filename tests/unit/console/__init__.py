"""What is in the folder `console`, alone."""
