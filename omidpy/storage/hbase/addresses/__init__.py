"""How an address of HBase is spelled, and what it says."""
