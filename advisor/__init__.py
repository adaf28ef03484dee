"""Judges a recorded run: metrics, rules, gain models, report. Never imports torch."""
