"""What is in the folder `base`, alone."""
