"""What is in the folder `storage/sqlite`, alone."""
