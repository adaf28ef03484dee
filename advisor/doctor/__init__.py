"""Whether this machine can train, and be measured while it does: one file an area, each a few findings."""
