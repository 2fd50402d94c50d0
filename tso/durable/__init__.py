"""What is durable of an oracle: its batches, its lease, and the timestamps that Omid left."""
