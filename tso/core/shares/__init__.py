"""What one client may have of what all share: places, rates, and the time of the machine."""
