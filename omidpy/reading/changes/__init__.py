"""What has changed between two moments, in the order of commits."""
