"""What is published: read, kept with transactions, verified and swept."""
