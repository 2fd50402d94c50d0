"""What everything else is said in: cells, clocks, durations.  Pure."""
