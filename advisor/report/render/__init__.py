"""Render a report, one file per form. Each sees only a `Report`."""
