"""Trying advice: the recorded program again, with the change and without, in turns; and what came of it."""
