"""What is in the folder `facts`, alone."""
