"""What people write and may be asked: durations, sizes, moments, arguments; read as values."""
