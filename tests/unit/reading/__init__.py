"""What is in the folder `reading`, alone."""
