"""What is in the folder `storage`, alone."""
