"""What has become of the jobs of a destination: its head, its plans, and where a job is decided."""
