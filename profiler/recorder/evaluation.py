"""Which of a step's spans were evaluation: told from training by what the loop does with its batches.

A fetch begins a batch. A batch with a backward pass is trained on; one with a forward pass only is evaluated, and so is
a forward pass in evaluation mode, without gradients, of a model that is being trained (a loop without a DataLoader).
Frozen teachers and target networks run inside training batches, and stay part of them. Passes without a loader that
come in every step, as the rollouts of reinforcement learning do, are the step's own work.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from profiler.agent import ring
from profiler.agent.ring import Event

EVALUATION = -1
"""Kind of the span that stands for a stretch of evaluation once it has been recognised."""

_UPDATES = (ring.BACKWARD, ring.OPTIMIZER)
_OTHERS = (ring.SAVE, ring.ITER, ring.FETCH)  # no part of an evaluation without a loader


@dataclass
class Evaluation:
    """What is known of one process's loaders and models; it learns with every step that is judged."""

    trained: set[int] = field(default_factory=set)
    """Loaders whose batches were trained on."""
    evaluated: set[int] = field(default_factory=set)
    """Loaders whose batches were only evaluated."""
    grad: bool | None = None
    """Evaluation ran with gradients enabled; None until one was seen."""
    _roots: set[int] = field(default_factory=set)
    """Models that were called in training."""

    def is_plain(self, spans: list[Event]) -> bool:
        """One batch, trained on, and nothing that could be an evaluation: as nearly all steps are."""
        loader: int | None = None
        roots: list[int] = []
        updated = False
        for span in spans:
            kind = span.kind
            if kind == ring.FETCH:
                if span.b or loader is not None or roots or updated:
                    return False
                loader = span.id
            elif kind == ring.FORWARD:
                if not (span.a and span.b):
                    return False
                roots.append(span.id)
            elif kind == ring.BACKWARD:
                updated = True
            elif kind == ring.ITER:
                return False
        if updated:
            self._roots.update(roots)
            if loader is not None:
                self.trained.add(loader)
        return updated

    def carve(self, spans: list[Event], again: bool) -> tuple[list[Event], bool]:
        """A step's spans with each stretch of evaluation replaced by one span of kind EVALUATION; and whether the model
        was called without a loader and not to train it. With `again` that was so in the step before, too, and is work
        of the step. Spans are in order.
        """
        marked = [False] * len(spans)
        alone: list[int] = []
        batches = _batches(spans)
        doubtful = [self._is_doubtful(spans, batch, last=batch is batches[-1]) for batch in batches]
        # A batch that was fetched ahead tells nothing by itself: those that do come first.
        for number in sorted(range(len(batches)), key=lambda number: not _tells(spans, batches[number])):
            if doubtful[number] and not self._is_one_of_many(spans, batches, doubtful, number):
                continue
            alone += self._judge(spans, batches[number], marked)
        found = bool(alone) or any(
            span.kind == ring.FORWARD and not (span.a or span.b) and span.id in self._roots and not marked[position]
            for position, span in enumerate(spans)
        )
        if not again:
            for position in alone:
                marked[position] = True
        for position, span in enumerate(spans):
            if span.kind == ring.FORWARD and marked[position]:
                self.grad = bool(self.grad) or bool(span.b)
            elif span.kind == ring.ITER or (span.kind == ring.FETCH and span.b):
                # what ends an evaluation loader's epoch, or makes its iterator
                marked[position] = marked[position] or self._only_evaluated(span.id)
        return (_joined(spans, marked) if any(marked) else spans), found

    def _only_evaluated(self, loader: int) -> bool:
        return loader in self.evaluated and loader not in self.trained

    def _is_doubtful(self, spans: list[Event], batch: list[int], *, last: bool) -> bool:
        """Forward passes with gradients and no backward pass. That may follow with the next batch (of another loader,
        as in semi-supervised training), be skipped, have failed or been cut off. In evaluation mode it does so only
        where the batch is the last, or the loader one that is trained on."""
        forwards = [spans[position] for position in batch if spans[position].kind == ring.FORWARD]
        if not forwards or any(spans[position].kind in _UPDATES for position in batch):
            return False
        skipped = last or self._is_midst_of_training(spans, batch)
        return all(forward.b and (forward.a or skipped) for forward in forwards)

    def _is_one_of_many(self, spans: list[Event], batches: list[list[int]], doubtful: list[bool], number: int) -> bool:
        """Several of one loader in a row are an evaluation that forgot `eval()` and `no_grad()` both."""
        loader = _loader(spans, batches[number])
        if loader is None or self._is_midst_of_training(spans, batches[number]):
            return False
        neighbours = [other for other in (number - 1, number + 1) if 0 <= other < len(batches)]
        return any(doubtful[other] and _loader(spans, batches[other]) == loader for other in neighbours)

    def _is_midst_of_training(self, spans: list[Event], batch: list[int]) -> bool:
        """Its loader is trained on, and this is no whole pass through it."""
        loader = _loader(spans, batch)
        if loader not in self.trained:
            return False
        begun = any(span.kind == ring.ITER and span.id == loader for span in spans[: batch[0]])
        ended = any(span.kind == ring.FETCH and span.b and span.id == loader for span in spans[batch[-1] + 1 :])
        return not (begun and ended)

    def _judge(self, spans: list[Event], batch: list[int], marked: list[bool]) -> list[int]:
        """Mark what is evaluation by its loader; gives back what may be one without."""
        loaders = _loaders(spans, batch)
        forwards = [position for position in batch if spans[position].kind == ring.FORWARD]
        if any(spans[position].kind in _UPDATES for position in batch):
            self.trained |= loaders
            alone = []
            for position in forwards:
                span = spans[position]
                if span.b:
                    self._roots.add(span.id)
                elif not span.a and span.id in self._roots:
                    alone.append(position)
            return alone
        if not loaders:
            return [position for position in batch if spans[position].kind not in _OTHERS] if forwards else []
        if forwards:
            self.evaluated |= loaders
        elif not all(self._only_evaluated(loader) for loader in loaders):
            return []
        for position in batch:
            marked[position] = spans[position].kind != ring.SAVE
        return []


def _batches(spans: list[Event]) -> list[list[int]]:
    """Positions of the spans, a list a batch: a fetch begins one, or several loaders' one after the other."""
    batches: list[list[int]] = [[]]
    together: set[int] = set()
    """Loaders that were fetched from, if nothing else has happened in this batch."""
    for position, span in enumerate(spans):
        if span.kind == ring.FETCH:
            if not together or span.b or span.id in together:
                batches.append([])
                together = set()
            if not span.b:
                together.add(span.id)
        elif span.kind != ring.GC:
            together = set()
        batches[-1].append(position)
    return batches


def _tells(spans: list[Event], batch: list[int]) -> bool:
    """Whether anything was done with it."""
    return any(spans[position].kind in (ring.FORWARD, *_UPDATES) for position in batch)


def _loaders(spans: list[Event], batch: list[int]) -> set[int]:
    """The loaders that the batch came from; none for what precedes the first fetch and for the end of an epoch."""
    found = set()
    for position in batch:
        span = spans[position]
        if span.kind == ring.FETCH and not span.b:
            found.add(span.id)
        elif span.kind != ring.GC:
            break
    return found


def _loader(spans: list[Event], batch: list[int]) -> int | None:
    """The first of them."""
    first = spans[batch[0]] if batch else None
    return first.id if first is not None and first.kind == ring.FETCH and not first.b else None


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
            result.append(sample._replace(kind=EVALUATION, start=start, end=end))
            start = end = None
        result.append(span)
    if start is not None and end is not None:
        result.append(sample._replace(kind=EVALUATION, start=start, end=end))
    return sorted(result, key=lambda event: (event.start, -event.end))
