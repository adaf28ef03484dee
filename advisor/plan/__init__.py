"""A training planned before it runs: what fits on which GPUs, and how often to save. Pure: numbers in, tables out."""
