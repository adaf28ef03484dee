"""Render a report, one file per form. Each uses only a `Report`."""
