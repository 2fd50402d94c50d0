"""What is in the folder `storage/hbase/native`, alone."""
