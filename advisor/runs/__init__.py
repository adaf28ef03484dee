"""Runs and traces as data: read, merged, put on one clock."""
