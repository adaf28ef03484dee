"""Check whether this machine can train and be measured: one file per area, each with a few findings."""
