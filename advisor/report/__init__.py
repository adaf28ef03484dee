"""The report: what it holds, its words, and its forms."""
