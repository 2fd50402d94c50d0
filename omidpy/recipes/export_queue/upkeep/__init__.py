"""What happens to a queue as a whole: made, re-bucketed, measured, purged, replayed."""
