"""What is in the folder `spark`, alone."""
