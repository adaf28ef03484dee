"""What recording may cost: the bars that the measurements are held against."""

STEP = 5e-6
"""Seconds of a step that the agent may take in the program's process ..."""
EVENT = 0.3e-6
"""... and for every event of the step."""

RECORDER = 0.03
"""Share of one core the recorder may use, at 10 samples a second with 8 workers."""

MEMORY = 5e6
"""Bytes of resident memory the agent may add to the program."""

START = 0.1
"""Seconds by which the script's first line may come later."""

BUDGET = 0.01
"""Share of the whole run that may be lost with windows on, at the default budget of as much."""


def cost(events):
    """Seconds that a step of so many events may take; None where nobody counted them."""
    return None if events is None else STEP + EVENT * events


TRACE_FASTER_RANKS, TRACE_FASTER_ONE = 12, 18
"""Times by which traces are read faster than by Holistic Trace Analysis: eight ranks of 109,000 events, and one of ten
times as many."""

TRACE_OVER_FLOOR = 1.5
"""Times that this may take what typed events and NumPy take for four breakdowns alone."""

TRACE_MEMORY = 0.5
"""Of Holistic Trace Analysis's memory, at the peak."""

TRACELENS_FASTER, TRACELENS_MEMORY = 10, 0.2
"""Times by which the report on a trace of shapes is faster than TraceLens' own, and the part of its memory."""

TRACE_GROWTH = 2.4
"""Times the CPU seconds that a trace twice as large may take."""

SCALE_RANKS = 1024
"""Ranks of 100,000 steps each whose report ..."""

SCALE_SECONDS, SCALE_MEMORY = 10.0, 2e9
"""... takes no more than this in seconds, and in bytes at the peak ..."""

SCALE_PAGE, SCALE_OPEN = 3e6, 1.0
"""... and is a page of no more bytes, which a browser opens within so many seconds."""
