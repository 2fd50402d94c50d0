"""What puts releases together."""
