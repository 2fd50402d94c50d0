"""What is in the folder `oracle`, alone."""
