"""Statistics of measured times."""
