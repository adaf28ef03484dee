"""The metric vocabulary: one file an area; a metric is a pure function with a unit and a docstring."""
