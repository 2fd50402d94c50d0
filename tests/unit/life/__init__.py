"""What is in the folder `life`, alone."""
