"""Read what the user declares: goals, thresholds and their own rules."""
