"""What is in the folder `admin`, alone."""
