"""What is in the folder `committers`, alone."""
