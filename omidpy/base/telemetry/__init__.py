"""What the parts tell of themselves: numbers, log lines, spans, names of stages."""
