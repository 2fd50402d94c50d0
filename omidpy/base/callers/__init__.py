"""What is known of the code that uses us: its block, loop, task or thread; it copies nothing."""
