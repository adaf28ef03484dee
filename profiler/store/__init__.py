"""A run folder's SQLite file, one a node: written by the recorder, read by everyone, at any time and after any end."""

from profiler.store.processes import owners, ranks
from profiler.store.reader import Extent, Survey, find, is_recording, read, survey
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
    "survey",
    "with_columns",
]
