"""What type checkers must accept and refuse; read by them, and never run."""
