"""Watch a run from its store alone, without touching the program or its recorder."""
