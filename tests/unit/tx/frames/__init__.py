"""What is in the folder `tx/frames`, alone."""
