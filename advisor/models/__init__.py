"""Gain models: pure functions from measured quantities to predicted ones, each with its source."""
