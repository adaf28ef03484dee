"""What the user declares: goals, thresholds and rules of their own."""
