"""Nested spans of one thread: their order, redundant inner spans, and each span's own time."""

from profiler.agent import ring
from profiler.agent.ring import Event


def in_order(spans: list[Event]) -> list[Event]:
    """Return the spans by start, outermost first, without those that only repeat the span around them.

    These are a fetch inside a fetch (a loader whose dataset reads from another loader), and a root module's forward
    pass inside another root module's, or inside a backward pass, where activation checkpointing reruns it.
    """
    result: list[Event] = []
    fetched = passed = 0
    # If two spans have the same times to the nanosecond, the outer one was written later.
    for span in sorted(spans, key=lambda event: (event.start, -event.end, -event.sequence)):
        kind = span.kind
        if kind in (ring.FETCH, ring.ITER):
            if span.end <= fetched and span.start < fetched:
                continue
            if kind == ring.FETCH:
                fetched = span.end
        elif kind in (ring.FORWARD, ring.BACKWARD):
            if kind == ring.FORWARD and span.end <= passed and span.start < passed:
                continue
            passed = max(passed, span.end)
        result.append(span)
    return result


def exclusive(spans: list[Event]) -> list[int]:
    """Return each span's nanoseconds without those of later spans inside it; spans must be in order."""
    own = [span.end - span.start for span in spans]
    stack: list[int] = []
    for position, span in enumerate(spans):
        while stack and spans[stack[-1]].end <= span.start:
            stack.pop()
        covered = span.start
        for outer in reversed(stack):  # a stretch of evaluation may outlast the span that it began in
            until = min(span.end, spans[outer].end)
            if until > covered:
                own[outer] -= until - covered
                covered = until
        stack.append(position)
    return [max(0, value) for value in own]


def closure(spans: list[Event], position: int) -> int:
    """Return the nanoseconds of an optimizer step's own time that its closure spent outside the passes.

    This is the time until the first pass, and from a forward pass to the next span. Time after a backward pass is the
    optimizer's.
    """
    update = spans[position]
    total, edge = 0, update.start
    closing = True
    passed = False
    for span in spans[position + 1 :]:
        if span.start >= update.end:
            break
        if closing:
            total += max(0, span.start - edge)
        edge = max(edge, span.end)
        if span.kind in (ring.FORWARD, ring.BACKWARD):
            passed = True
            closing = span.kind == ring.FORWARD
    return total if passed else 0
