"""The report: its content, wording and forms."""
