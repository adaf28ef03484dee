"""A run folder's SQLite file, one a node: written by the recorder, read by everyone, at any time and after any end."""

from profiler.store.reader import find, is_recording, read
from profiler.store.tables import Tables
from profiler.store.values import decode_fact
from profiler.store.writer import Writer

__all__ = ["Tables", "Writer", "decode_fact", "find", "is_recording", "read"]
