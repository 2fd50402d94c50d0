"""Which tables are ours, and what is done to them: `omidpy table`."""
