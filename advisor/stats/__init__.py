"""Estimate intervals and tests from measured times."""
