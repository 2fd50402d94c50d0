"""What the tests share; imported, never collected."""
