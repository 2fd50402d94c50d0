"""What is shipped, and how it is checked: `make dist`, `make changelog` and `make release`.

Part of the checkout alone: no package holds it.
"""
