"""What tests of operations share: the contract of their stores, and steps that run twice."""
