"""Export a run in the formats of other tools, one file per format.

Each is a thin layer over the recording and the report's metrics.
"""
