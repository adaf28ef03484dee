"""A run in the formats of other tools, one file a format: thin ones over the recording and the report's metrics."""
