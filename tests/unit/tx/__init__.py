"""What is in the folder `tx`, alone."""
