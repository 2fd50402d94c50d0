"""What is in the folder `cli`, alone."""
