"""Gain models: pure functions from measured to predicted quantities, each with its source."""
