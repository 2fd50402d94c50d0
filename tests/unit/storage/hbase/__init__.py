"""What is in the folder `storage/hbase`, alone."""
