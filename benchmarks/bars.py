"""Bars of the benchmarks: limits for the cost of recording, for reading traces, and for reports."""

STEP = 5e-6
"""Most seconds per step that the agent may take in the program's process ..."""
EVENT = 0.3e-6
"""... plus this much for each event of the step."""

RECORDER = 0.03
"""Largest share of one core that the recorder may use, at 10 samples a second with 8 workers."""

MEMORY = 5e6
"""Most bytes of resident memory that the agent may add to the program."""

START = 0.1
"""Most seconds by which the script's first line may start later."""

BUDGET = 0.01
"""Largest share of the whole run that may be lost with windows on, at the default budget, which is the same share."""


def cost(events):
    """Return the most seconds that a step with this many events may take; None if the events were not counted."""
    return None if events is None else STEP + EVENT * events


TRACE_FASTER_RANKS, TRACE_FASTER_ONE = 12, 18
"""Least speedup over Holistic Trace Analysis: eight ranks of 109,000 events, and one of ten times as many."""

TRACE_OVER_FLOOR = 1.5
"""Longest time of the same work, as a multiple of what typed events and NumPy take for four breakdowns alone."""

TRACE_MEMORY = 0.5
"""Largest peak memory of the same work, as a share of Holistic Trace Analysis's."""

TRACELENS_FASTER, TRACELENS_MEMORY = 10, 0.2
"""Least speedup over TraceLens for the report on a trace with shapes, and largest share of its memory."""

TRACE_GROWTH = 2.4
"""Most CPU seconds for a trace that is twice as large, as a multiple of those for the smaller one."""

SCALE_RANKS = 1024
"""Number of ranks, of 100,000 steps each, whose report ..."""

SCALE_SECONDS, SCALE_MEMORY = 10.0, 2e9
"""... takes at most this many seconds, and this many bytes at the peak ..."""

SCALE_PAGE, SCALE_OPEN = 3e6, 1.0
"""... and is a page of at most this many bytes, which a browser opens within this many seconds."""
