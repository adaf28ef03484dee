"""Compare two recorded runs: the changes, and whether they are more than chance."""
