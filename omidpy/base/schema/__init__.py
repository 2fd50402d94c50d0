"""What a table and a compaction may be asked, families' options, and Phoenix's attributes."""
