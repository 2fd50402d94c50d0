"""How a client asks the timestamp oracle."""
