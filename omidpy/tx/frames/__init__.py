"""Rows of a table as typed columns, and typed columns as rows: Arrow's, and through it Spark's."""
