"""Plan a training run before it starts: what fits on which GPUs, and how often to save a checkpoint.

The planning is pure: numbers in, tables out.
"""
