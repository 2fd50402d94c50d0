"""Apache Phoenix's tables, without Phoenix; tests/integration/test_phoenix.py has the real one."""
