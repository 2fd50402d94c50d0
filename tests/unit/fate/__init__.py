"""What is in the folder `fate`, alone."""
