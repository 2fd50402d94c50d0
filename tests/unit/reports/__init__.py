"""What is in the folder `reports`, alone."""
