"""Files in an object store: `omidpy committers` and `omidpy export-snapshot`."""
