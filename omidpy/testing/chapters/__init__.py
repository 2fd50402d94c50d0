"""The store contract, chapter by chapter; `omidpy.testing.contract` binds them."""
