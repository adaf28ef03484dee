"""The SQLite files of a run folder, one per node.

The recorder writes them. They can be read at any time, however the recording ended.
"""

from profiler.store.processes import owners, ranks
from profiler.store.reader import Extent, Survey, find, is_recording, outline, read, runs, survey
from profiler.store.tables import Tables
from profiler.store.thin import Conditions, Stretches, newest_rows, thin
from profiler.store.values import decode_fact, with_columns
from profiler.store.writer import Writer

__all__ = [
    "Conditions",
    "Extent",
    "Stretches",
    "Survey",
    "Tables",
    "Writer",
    "decode_fact",
    "find",
    "is_recording",
    "newest_rows",
    "outline",
    "owners",
    "ranks",
    "read",
    "runs",
    "survey",
    "thin",
    "with_columns",
]
