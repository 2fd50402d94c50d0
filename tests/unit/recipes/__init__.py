"""What is built of transactions."""
