"""Recordings that others made, as the tables of a run."""
