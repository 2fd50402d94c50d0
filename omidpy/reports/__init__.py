"""What is known of a store, its oracle and its jobs, as JSON values.

The command line prints them with `--json`, and the console draws them; nothing is computed there.
"""
