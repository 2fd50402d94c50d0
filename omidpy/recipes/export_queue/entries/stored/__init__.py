"""The bytes in which a queue and its entries are stored."""
