"""What the oracle decides, without I/O."""
