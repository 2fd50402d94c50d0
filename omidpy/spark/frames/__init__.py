"""DataFrames of tables: what is read is one snapshot, what is written is one transaction."""
