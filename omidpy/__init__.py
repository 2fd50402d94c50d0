"""Transactions for HBase and for one file, from Python."""
