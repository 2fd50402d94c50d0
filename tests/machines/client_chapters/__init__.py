"""What a transaction promises, chapter by chapter; `tests.machines.client_suite` binds them."""
