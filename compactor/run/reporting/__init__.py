"""What a run tells of itself: its record, its notes, its report."""
