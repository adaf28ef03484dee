"""A run while it goes on, seen from its store alone: nothing of the program or its recorder is touched."""
