"""What is in the folder `tso`, alone."""
