"""Judge a recorded run with metrics, rules and gain models, and report on it. Never imports torch."""
