"""Attach to a running program: install the agent in it and remove it again."""
