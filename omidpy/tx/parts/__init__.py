"""One transaction, written by several processes: what its owner hands out and takes back."""
