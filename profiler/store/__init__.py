"""The SQLite files of a run folder, one per node.

The recorder writes them. They can be read at any time and after any kind of end.
"""

from profiler.store.processes import owners, ranks
from profiler.store.reader import Extent, Survey, find, is_recording, read, runs, survey
from profiler.store.tables import Tables
from profiler.store.thin import Newest, Stretches, Thin
from profiler.store.values import decode_fact, with_columns
from profiler.store.writer import Writer

__all__ = [
    "Extent",
    "Newest",
    "Stretches",
    "Survey",
    "Tables",
    "Thin",
    "Writer",
    "decode_fact",
    "find",
    "is_recording",
    "owners",
    "ranks",
    "read",
    "runs",
    "survey",
    "with_columns",
]
