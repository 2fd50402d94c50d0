"""What one snapshot sees."""
