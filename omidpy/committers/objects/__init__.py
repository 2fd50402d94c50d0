"""A store of objects: its client, files that become visible later, and files about files."""
