"""Who runs operations: one of them, what is run next, the threads, and what is removed later."""
