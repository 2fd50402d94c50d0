"""Where cells live: the `Store` protocol and its backends."""
