"""What is in the folder `testing`, alone."""
