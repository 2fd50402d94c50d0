"""The oracle as a server: sockets, who may come in, conversations, and what is said of it."""
