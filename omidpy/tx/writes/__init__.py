"""What a transaction has written: checked, buffered, and undone with a savepoint."""
