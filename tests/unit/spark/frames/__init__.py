"""What is in the folder `spark/frames`, alone: nothing here starts Spark."""
