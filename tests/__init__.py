"""The tests of the library, the oracle and the compactor."""
