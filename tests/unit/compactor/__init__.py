"""What is in the folder `compactor`, alone."""
