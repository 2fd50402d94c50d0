"""A frame is written: by tasks, in one transaction, once."""
