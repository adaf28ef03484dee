"""Nested spans of one thread: their order, redundant inner spans, and each span's own time."""

from profiler.agent import ring
from profiler.agent.ring import Event


def in_order(spans: list[Event]) -> list[Event]:
    """Return the spans by start, outermost first, without those that only repeat the span around them.

    These are a fetch inside a fetch (a loader whose dataset reads from another loader), and a root module's forward
    pass inside another root module's, or inside a backward pass, where activation checkpointing reruns it.
    """
    result: list[Event] = []
    fetch_end = pass_end = 0
    # If two spans have the same times to the nanosecond, the outer one was written later.
    for span in sorted(spans, key=lambda event: (event.start, -event.end, -event.sequence)):
        kind = span.kind
        if kind in (ring.FETCH, ring.ITER):
            if span.end <= fetch_end and span.start < fetch_end:
                continue
            if kind == ring.FETCH:
                fetch_end = span.end
        elif kind in (ring.FORWARD, ring.BACKWARD):
            if kind == ring.FORWARD and span.end <= pass_end and span.start < pass_end:
                continue
            pass_end = max(pass_end, span.end)
        result.append(span)
    return result


def exclusive(spans: list[Event]) -> list[int]:
    """Return each span's nanoseconds without those of later spans inside it; spans must be in order."""
    own_times = [span.end - span.start for span in spans]
    stack: list[int] = []
    for position, span in enumerate(spans):
        while stack and spans[stack[-1]].end <= span.start:
            stack.pop()
        covered_until = span.start
        for outer in reversed(stack):  # a stretch of evaluation may outlast the span that it began in
            overlap_end = min(span.end, spans[outer].end)
            if overlap_end > covered_until:
                own_times[outer] -= overlap_end - covered_until
                covered_until = overlap_end
        stack.append(position)
    return [max(0, value) for value in own_times]


def closure(spans: list[Event], position: int) -> int:
    """Return the nanoseconds of an optimizer step's own time that its closure spent outside the passes.

    This is the time until the first pass, and from a forward pass to the next span. Time after a backward pass is the
    optimizer's.
    """
    update = spans[position]
    total, edge = 0, update.start
    in_closure = True
    has_pass = False
    for span in spans[position + 1 :]:
        if span.start >= update.end:
            break
        if in_closure:
            total += max(0, span.start - edge)
        edge = max(edge, span.end)
        if span.kind in (ring.FORWARD, ring.BACKWARD):
            has_pass = True
            in_closure = span.kind == ring.FORWARD
    return total if has_pass else 0
