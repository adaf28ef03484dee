"""From events to steps: pure, one process at a time.

A step runs from the end of one optimizer update to the end of the next. Where a program has several optimizers, a step
ends with the last of them before one steps again. A program that calls `step()` itself draws its own boundaries.

What happens between training batches - evaluation, saving, starting an epoch - is carved out of the step it falls into,
and tags it. The rest is partitioned into phases: every moment belongs to the innermost thing that was going on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from profiler.agent import ring
from profiler.agent.ring import Event
from profiler.schema import (
    TAG_CHECKPOINT,
    TAG_COMPILE,
    TAG_EPOCH_START,
    TAG_EVALUATION,
    TAG_FIRST,
    TAG_WINDOW,
    Step,
)

# Host kinds that are part of a step's anatomy.
_SPANS = frozenset(
    (ring.FETCH, ring.ITER, ring.FORWARD, ring.BACKWARD, ring.OPTIMIZER, ring.SAVE, ring.GC, ring.WINDOW)
)

# What the agent says of a step.
_AGENT_TAGS = TAG_WINDOW | TAG_COMPILE

_EVALUATION = -1  # stands for a stretch of evaluation once it has been recognised

# A program without optimizer steps or step() would keep its events for ever.
MOST_OPEN = 200_000


@dataclass
class Segmenter:
    """Feed it the events of one training process in order; it gives back finished steps.

    `origin` is the run clock's zero on the events' clock, ns.
    """

    pid: int
    origin: int
    trained: set[int] = field(default_factory=set)
    """Loaders whose batches were trained on."""
    evaluated: set[int] = field(default_factory=set)
    """Loaders whose batches were only evaluated."""
    evaluation_grad: bool | None = None
    """Evaluation ran with gradients enabled; None until one was seen."""
    index: int = 0
    """Of the next step."""
    unmeasured: set[str] = field(default_factory=set)
    """Fields of Step that are not measured, or no more."""
    unbounded: bool = False
    """No boundary was seen for so long that events had to be dropped."""

    def __post_init__(self) -> None:
        self._open: list[Event] = []
        self._boundary: int | None = None
        self._stepped: set[int] = set()
        self._last_update: Event | None = None
        self._own_boundaries = False
        self._fetches = False
        """A DataLoader is in use in the training thread."""
        self._lane = 0
        self._roots_trained: set[int] = set()
        self._first_fetch: set[int] = set()
        """Loaders whose next fetch is the first of an epoch."""

    def feed(self, events: Iterable[Event]) -> list[Step]:
        """Steps that these events have finished."""
        steps: list[Step] = []
        for event in events:
            kind = event.kind
            if kind == ring.OPTIMIZER:
                self._lane = event.lane
                if not self._own_boundaries and not event.b:
                    if event.id in self._stepped and self._last_update is not None:
                        steps.append(self._close(self._last_update.end, self._last_update.a))
                        self._stepped.clear()
                    self._stepped.add(event.id)
                    self._last_update = event
                self._open.append(event)
            elif kind == ring.STEP:
                self._lane = event.lane
                if not self._own_boundaries:
                    self._own_boundaries = True
                    self._stepped.clear()
                steps.append(self._close(event.end, event.a))
            elif kind in _SPANS:
                self._open.append(event)
        if len(self._open) > MOST_OPEN:
            self.unbounded = True
            del self._open[: len(self._open) // 2]
        return steps

    def flush(self) -> list[Step]:
        """The last step, whose end only the end of the program shows."""
        steps = []
        if self._last_update is not None and not self._own_boundaries:
            last, self._last_update = self._last_update, None
            steps.append(self._close(last.end, last.a))
        # No step's, but it tells what an evaluation at the very end was like.
        self._with_evaluation(_in_order([event for event in self._open if event.lane == self._lane]))
        self._open.clear()
        return steps

    @property
    def pending(self) -> bool:
        """There are events that belong to no step yet."""
        return bool(self._open)

    # ---- one step ----

    def _close(self, boundary: int, tags: int) -> Step:
        mine = [event for event in self._open if event.end <= boundary]
        self._open = [event for event in self._open if event.end > boundary]
        lane = [event for event in mine if event.lane == self._lane]
        tags &= _AGENT_TAGS
        begin = self._boundary
        if begin is None:
            tags |= TAG_FIRST
            begin = min((event.start for event in lane), default=boundary)
        spans = [event for event in lane if event.start >= begin]
        self._boundary = boundary
        step = self._anatomy(spans, begin, boundary, tags)
        self.index += 1
        unmeasured: dict[str, Any] = dict.fromkeys(self.unmeasured)
        return replace(step, **unmeasured) if unmeasured else step

    def _anatomy(self, spans: list[Event], begin: int, end: int, tags: int) -> Step:
        spans = self._with_evaluation(_in_order(spans))
        exclusive = _exclusive(spans)
        wait = overhead = epoch = fetch_host = 0
        batches = empty = depth = backward = backward_end = queued = 0
        sums = dict.fromkeys((_EVALUATION, ring.FORWARD, ring.BACKWARD, ring.OPTIMIZER, ring.SAVE, ring.GC), 0)
        for span, own in zip(spans, exclusive, strict=True):
            kind = span.kind
            if kind == ring.FETCH:
                self._fetches = True
                first = span.id in self._first_fetch and span.a != -1
                self._first_fetch.discard(span.id)
                if first or span.b:
                    epoch += own
                else:
                    wait, overhead = (wait + own, overhead) if span.a <= 0 else (wait, overhead + own)
                    fetch_host += own
                if not span.b:
                    batches += 1
                    empty += span.a <= 0
                    if span.a >= 0:
                        queued += 1
                        depth += span.a
            elif kind == ring.ITER:
                epoch += own
                tags |= TAG_EPOCH_START
                self._first_fetch.add(span.id)
            elif kind == ring.WINDOW:
                tags |= TAG_WINDOW
            else:
                sums[kind] += own
                if kind == ring.OPTIMIZER:
                    tags |= span.a & _AGENT_TAGS
                elif kind == ring.BACKWARD and span.start >= backward_end:  # checkpointing runs others inside it
                    backward += span.a == 0
                    backward_end = span.end
        if sums[_EVALUATION]:
            tags |= TAG_EVALUATION
        if sums[ring.SAVE]:
            tags |= TAG_CHECKPOINT
        if epoch:
            tags |= TAG_EPOCH_START
        between = sums[_EVALUATION] + sums[ring.SAVE] + epoch
        duration = end - begin - between
        named = wait + overhead + sum(sums[k] for k in (ring.FORWARD, ring.BACKWARD, ring.OPTIMIZER, ring.GC))
        return Step(
            pid=self.pid,
            index=self.index,
            start=(begin - self.origin) / 1e9,
            duration=duration / 1e9,
            tags=tags,
            micro_steps=float(max(1, min(backward, batches) if batches else backward)),
            batches=float(batches),
            data_wait=wait / 1e9 if self._fetches else None,
            loader_overhead=overhead / 1e9 if self._fetches else None,
            forward=_seen(ring.FORWARD, spans, sums),
            backward=_seen(ring.BACKWARD, spans, sums),
            optimizer=sums[ring.OPTIMIZER] / 1e9,
            gc=sums[ring.GC] / 1e9,
            other=max(0, duration - named) / 1e9,
            evaluation=sums[_EVALUATION] / 1e9,
            checkpoint_save=sums[ring.SAVE] / 1e9,
            epoch_start=epoch / 1e9,
            fetch_host=fetch_host / 1e9,
            fetches_empty=float(empty),
            queue_depth=depth / queued if queued else None,
        )

    # ---- evaluation ----

    def _with_evaluation(self, spans: list[Event]) -> list[Event]:
        """The same spans with each stretch of evaluation replaced by one span of kind _EVALUATION.

        A fetch begins a batch. A batch with a backward pass is trained on; one with a forward pass only is evaluated,
        and so is a forward pass in evaluation mode, without gradients, of a model that is being trained (a loop without
        a DataLoader). Frozen teachers and target networks run inside training batches, and stay part of them.
        """
        if self._own_boundaries and not any(span.kind in (ring.BACKWARD, ring.OPTIMIZER) for span in spans):
            return spans  # no training as torch knows it: the forward passes are the work itself
        if _is_plain(spans):  # as nearly all are
            self.trained.update(span.id for span in spans if span.kind == ring.FETCH)
            self._roots_trained.update(span.id for span in spans if span.kind == ring.FORWARD)
            return spans
        marked = [False] * len(spans)
        batches = _batches(spans)
        doubtful = [self._is_doubtful(spans, batch, last=batch is batches[-1]) for batch in batches]
        for number, batch in enumerate(batches):
            if doubtful[number] and not self._is_one_of_many(spans, batches, doubtful, number):
                continue
            self._judge_batch(spans, batch, marked)
        for position, span in enumerate(spans):  # what ends an evaluation loader's epoch, or makes its iterator
            if (span.kind == ring.ITER or (span.kind == ring.FETCH and span.b)) and self._only_evaluated(span.id):
                marked[position] = True
        if not any(marked):
            return spans
        return _joined(spans, marked)

    def _only_evaluated(self, loader: int) -> bool:
        return loader in self.evaluated and loader not in self.trained

    def _is_doubtful(self, spans: list[Event], batch: list[int], *, last: bool) -> bool:
        """Forward passes with gradients, in training mode unless they are the last, and no backward pass: that may
        follow with the next batch (of another loader, as in semi-supervised training), be skipped, or be cut off."""
        kinds = {spans[position].kind for position in batch}
        forwards = [spans[position] for position in batch if spans[position].kind == ring.FORWARD]
        return (
            bool(forwards)
            and not kinds & {ring.BACKWARD, ring.OPTIMIZER}
            and all(forward.b and (forward.a or last) for forward in forwards)
        )

    def _is_one_of_many(self, spans: list[Event], batches: list[list[int]], doubtful: list[bool], number: int) -> bool:
        """Several of one loader in a row are an evaluation that forgot `eval()` and `no_grad()` both."""
        loader = _loader(spans, batches[number])
        neighbours = [other for other in (number - 1, number + 1) if 0 <= other < len(batches)]
        return loader is not None and any(
            doubtful[other] and _loader(spans, batches[other]) == loader for other in neighbours
        )

    def _judge_batch(self, spans: list[Event], batch: list[int], marked: list[bool]) -> None:
        forwards = [position for position in batch if spans[position].kind == ring.FORWARD]
        loader = _loader(spans, batch)
        loaders = set() if loader is None else {loader}
        if any(spans[position].kind in (ring.BACKWARD, ring.OPTIMIZER) for position in batch):
            self.trained |= loaders
            for position in forwards:
                span = spans[position]
                if span.b:
                    self._roots_trained.add(span.id)
                elif not span.a and span.id in self._roots_trained:
                    self._evaluates(span)
                    marked[position] = True
            return
        if forwards:
            self.evaluated |= loaders
            for position in forwards:
                self._evaluates(spans[position])
        elif loader is None or not self._only_evaluated(loader):
            return
        for position in batch:
            marked[position] = spans[position].kind != ring.SAVE

    def _evaluates(self, forward: Event) -> None:
        self.evaluation_grad = bool(self.evaluation_grad) or bool(forward.b)


def _is_plain(spans: list[Event]) -> bool:
    """One batch, trained on, and nothing that could be an evaluation."""
    fetches = 0
    trained = False
    for position, span in enumerate(spans):
        kind = span.kind
        if kind == ring.FETCH:
            fetches += 1
            if span.b or fetches > 1 or position > 0:
                return False
        elif kind == ring.FORWARD:
            if not (span.a and span.b):
                return False
        elif kind == ring.BACKWARD:
            trained = True
        elif kind == ring.ITER:
            return False
    return trained


def _batches(spans: list[Event]) -> list[list[int]]:
    """Positions of the spans, a list a batch: a fetch begins one."""
    batches: list[list[int]] = [[]]
    for position, span in enumerate(spans):
        if span.kind == ring.FETCH:
            batches.append([])
        batches[-1].append(position)
    return batches


def _loader(spans: list[Event], batch: list[int]) -> int | None:
    """The loader that the batch came from; None for what precedes the first fetch and for the end of an epoch."""
    first = spans[batch[0]] if batch else None
    return first.id if first is not None and first.kind == ring.FETCH and not first.b else None


def _in_order(spans: list[Event]) -> list[Event]:
    """By start, outermost first, without fetches inside a fetch: a loader whose dataset reads from another loader."""
    result: list[Event] = []
    fetched = 0
    for span in sorted(spans, key=lambda event: (event.start, -event.end)):
        if span.kind in (ring.FETCH, ring.ITER):
            if span.end <= fetched and span.start < fetched:
                continue
            if span.kind == ring.FETCH:
                fetched = span.end
        result.append(span)
    return result


def _seen(kind: int, spans: list[Event], sums: dict[int, int]) -> float | None:
    """Seconds; None where it did not show in a step that updated the model: torch.compile has taken it whole, say."""
    if any(span.kind == kind for span in spans) or not any(span.kind == ring.OPTIMIZER for span in spans):
        return sums[kind] / 1e9
    return None


def _exclusive(spans: list[Event]) -> list[int]:
    """Nanoseconds of each span less those in which a later one was going on; spans are in order."""
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


def _joined(spans: list[Event], marked: list[bool]) -> list[Event]:
    """Runs of marked spans become one; what lies inside a run (its gaps too) belongs to it."""
    result: list[Event] = []
    start = end = None
    sample = spans[0]
    for span, is_marked in zip(spans, marked, strict=True):
        if is_marked:
            start = span.start if start is None else start
            end = span.end if end is None else max(end, span.end)
            continue
        if start is not None and end is not None:
            if span.end <= end:
                if span.kind == ring.SAVE:
                    result.append(span)
                continue
            result.append(sample._replace(kind=_EVALUATION, start=start, end=end))
            start = end = None
        result.append(span)
    if start is not None and end is not None:
        result.append(sample._replace(kind=_EVALUATION, start=start, end=end))
    return sorted(result, key=lambda event: (event.start, -event.end))
