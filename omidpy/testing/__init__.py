"""Tools for tests of what is built upon omidpy: contracts, faults, histories and their judges."""
