"""An S3 server for tests: versitygw on a folder, and a proxy that counts, delays and fails."""
